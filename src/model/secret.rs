//! Text that must not be seen.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A token or a key. It is kept and sent as it is, but debug output shows only whether there is one.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// The text itself, for those who send or keep it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_empty() {
            "(none)"
        } else {
            "(hidden)"
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_kept_whole_and_never_shown() {
        let secret = Secret::from("hush");
        assert_eq!(serde_json::to_string(&secret).unwrap(), "\"hush\"");
        let read: Secret = serde_json::from_str("\"hush\"").unwrap();
        assert_eq!((read.expose(), &read), ("hush", &secret));
        assert_eq!(
            format!("{secret:?} {:?}", Secret::default()),
            "(hidden) (none)"
        );
    }
}
