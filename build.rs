//! Compiles our protos without protoc, and prepares the descriptors that gRPC reflection serves.

use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use prost::Message;
use prost::encoding::{WireType, decode_key, decode_varint, encode_key, encode_varint};

/// `FileDescriptorProto.source_code_info`: comments and positions, four fifths of the set.
const SOURCE_CODE_INFO: u32 = 9;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    for input in ["build.rs", "Cargo.lock", "proto"] {
        println!("cargo:rerun-if-changed={input}");
    }
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let ours = protox::compile(["crossway/v1/operator.proto"], ["proto"])?;
    fs::write(out.join("crossway.bin"), ours.encode_to_vec())?;
    tonic_prost_build::configure()
        .build_client(true)
        .build_transport(false)
        .compile_fds(ours)?;
    let types = envoy_types()?.join("src/generated/types.bin");
    let envoy = without_comments(&fs::read(types)?)?;
    fs::write(out.join("envoy.bin"), envoy)?;
    Ok(())
}

/// Where the `envoy-types` package is: it ships the descriptors of all Envoy messages, but exports no constant.
fn envoy_types() -> Result<PathBuf> {
    // Offline first. Cargo may not have fetched what only other builds of ours need; then it must be allowed to.
    let found = metadata(&["--offline"]).or_else(|_| metadata(&[]))?;
    let packages = found.get("packages").and_then(|list| list.as_array());
    let package = packages
        .ok_or("no packages")?
        .iter()
        .find(|package| {
            package
                .get("name")
                .is_some_and(|name| name == "envoy-types")
        })
        .ok_or("envoy-types is not in Cargo.lock")?;
    let manifest = package.get("manifest_path").and_then(|path| path.as_str());
    let manifest = manifest.ok_or("no path")?;
    Ok(Path::new(manifest).parent().ok_or("no folder")?.to_owned())
}

fn metadata(extra: &[&str]) -> Result<serde_json::Value> {
    let output = Command::new(env::var("CARGO")?)
        .args(["metadata", "--format-version=1", "--locked"])
        .args(["--filter-platform", &env::var("TARGET")?])
        .args(extra)
        .current_dir(env::var("CARGO_MANIFEST_DIR")?)
        .output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Drops comments from an encoded `FileDescriptorSet`. Works on the wire form, because decoding into types would lose
/// custom options such as the validation rules that `grpcurl describe` shows.
fn without_comments(mut set: &[u8]) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(set.len() / 4);
    while !set.is_empty() {
        let (_, file) = length_delimited(&mut set)?;
        let file = without_field(file, SOURCE_CODE_INFO)?;
        encode_key(1, WireType::LengthDelimited, &mut out);
        encode_varint(file.len() as u64, &mut out);
        out.extend_from_slice(&file);
    }
    Ok(out)
}

fn without_field(mut message: &[u8], drop: u32) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(message.len());
    while !message.is_empty() {
        let before = message;
        let (tag, wire) = decode_key(&mut message)?;
        match wire {
            WireType::Varint => {
                decode_varint(&mut message)?;
            }
            WireType::LengthDelimited => {
                let len = usize::try_from(decode_varint(&mut message)?)?;
                message = message.get(len..).ok_or("truncated descriptor")?;
            }
            other => return Err(format!("unexpected {other:?} in a file descriptor").into()),
        }
        if tag != drop {
            let field = before.split_at(before.len() - message.len()).0;
            out.extend_from_slice(field);
        }
    }
    Ok(out)
}

fn length_delimited<'a>(bytes: &mut &'a [u8]) -> Result<(u32, &'a [u8])> {
    let (tag, _) = decode_key(bytes)?;
    let len = usize::try_from(decode_varint(bytes)?)?;
    let (value, rest) = bytes.split_at_checked(len).ok_or("truncated set")?;
    *bytes = rest;
    Ok((tag, value))
}
