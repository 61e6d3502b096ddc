//! Keys.

use crate::http::json::is_empty;
use crate::model::KvEntry;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Serialize, Serializer};

fn base64_or_null<S: Serializer>(value: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    match value.is_empty() {
        true => serializer.serialize_unit(),
        false => serializer.serialize_str(&STANDARD.encode(value)),
    }
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct KvView<'a> {
    lock_index: u64,
    key: &'a str,
    flags: u64,
    #[serde(serialize_with = "base64_or_null")]
    value: &'a [u8],
    #[serde(skip_serializing_if = "is_empty")]
    session: &'a str,
    create_index: u64,
    modify_index: u64,
}

impl<'a> From<&'a KvEntry> for KvView<'a> {
    fn from(e: &'a KvEntry) -> Self {
        Self {
            lock_index: e.lock_index,
            key: &e.key,
            flags: e.flags,
            value: &e.value,
            session: &e.session,
            create_index: e.create_index,
            modify_index: e.modify_index,
        }
    }
}
