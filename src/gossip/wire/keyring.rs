//! Encryption of gossip: AES-GCM with a ring of keys, the first of which encrypts and any of which decrypts.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::aead;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::gossip::wire::Error;

/// Bytes that make each encryption unlike any other; they must come from a secure random source.
pub type Nonce = [u8; aead::NONCE_LEN];

/// Block size of AES, to which version 0 pads.
const BLOCK: usize = 16;
/// Bytes of the tag that authenticates a message.
const TAG: usize = 16;
/// Bytes before the ciphertext: version and nonce.
const PREFIX: usize = 1 + aead::NONCE_LEN;

/// How a message is padded before it is encrypted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EncryptionVersion {
    /// PKCS #7, for memberlist protocol 1.
    Padded,
    /// Not at all.
    #[default]
    Unpadded,
}

impl EncryptionVersion {
    fn number(self) -> u8 {
        match self {
            Self::Padded => 0,
            Self::Unpadded => 1,
        }
    }

    fn padding(self, len: usize) -> usize {
        match self {
            Self::Padded => BLOCK - len % BLOCK,
            Self::Unpadded => 0,
        }
    }

    /// Bytes that `len` bytes become.
    pub fn encrypted_len(self, len: usize) -> usize {
        PREFIX + len + self.padding(len) + TAG
    }

    /// Most bytes that encryption adds to a message of any length.
    pub fn overhead(self) -> usize {
        match self {
            Self::Padded => PREFIX + BLOCK + TAG,
            Self::Unpadded => PREFIX + TAG,
        }
    }
}

/// A key of AES-128, -192 or -256.
pub struct Key {
    bytes: Vec<u8>,
    aead: aead::LessSafeKey,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({} bytes)", self.bytes.len())
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        aws_lc_rs::constant_time::verify_slices_are_equal(&self.bytes, &other.bytes).is_ok()
    }
}

impl Eq for Key {}

impl Key {
    /// A key from its bytes.
    ///
    /// # Errors
    /// [`Error::KeySize`] unless there are 16, 24 or 32 bytes.
    pub fn new(bytes: &[u8]) -> Result<Self, Error> {
        let algorithm = match bytes.len() {
            16 => &aead::AES_128_GCM,
            24 => &aead::AES_192_GCM,
            32 => &aead::AES_256_GCM,
            other => return Err(Error::KeySize(other)),
        };
        let key = aead::UnboundKey::new(algorithm, bytes).map_err(|_| Error::Encryption)?;
        Ok(Self {
            bytes: bytes.to_vec(),
            aead: aead::LessSafeKey::new(key),
        })
    }

    /// A key as configuration and `keyring` commands write it.
    ///
    /// # Errors
    /// When it is no base64, or of a wrong size.
    pub fn from_base64(text: &str) -> Result<Self, Error> {
        Self::new(&STANDARD.decode(text).map_err(|_| Error::KeyText)?)
    }

    /// The key as configuration writes it: a secret.
    pub fn to_base64(&self) -> String {
        STANDARD.encode(&self.bytes)
    }

    /// The bytes of the key: a secret.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// The keys of a pool; the first is the primary one. Cloning shares them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keyring {
    primary: Arc<Key>,
    others: Vec<Arc<Key>>,
}

impl Keyring {
    /// A ring of one key.
    pub fn new(primary: Key) -> Self {
        Self {
            primary: Arc::new(primary),
            others: Vec::new(),
        }
    }

    /// The key that encrypts.
    pub fn primary(&self) -> &Key {
        &self.primary
    }

    /// All keys, the primary one first.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        let others = self.others.iter().map(Arc::as_ref);
        std::iter::once(self.primary()).chain(others)
    }

    /// Adds a key that decrypts; one that is there already changes nothing.
    pub fn install(&mut self, key: Key) {
        if !self.keys().any(|known| *known == key) {
            self.others.push(Arc::new(key));
        }
    }

    /// Makes an installed key the primary one.
    ///
    /// # Errors
    /// [`Error::KeyUnknown`] when it is not installed.
    pub fn use_key(&mut self, key: &[u8]) -> Result<(), Error> {
        if self.primary.bytes == key {
            return Ok(());
        }
        let mut others = self.others.iter_mut();
        let found = others.find(|known| known.bytes == key);
        std::mem::swap(found.ok_or(Error::KeyUnknown)?, &mut self.primary);
        Ok(())
    }

    /// Takes a key out of the ring; one that is not there changes nothing.
    ///
    /// # Errors
    /// [`Error::KeyPrimary`] for the primary key.
    pub fn remove(&mut self, key: &[u8]) -> Result<(), Error> {
        if self.primary.bytes == key {
            return Err(Error::KeyPrimary);
        }
        self.others.retain(|known| known.bytes != key);
        Ok(())
    }

    /// Appends `plain`, encrypted with the primary key, to `out`. `bound` is authenticated with it but not sent.
    pub(super) fn seal(
        &self,
        version: EncryptionVersion,
        nonce: Nonce,
        plain: &[u8],
        bound: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        out.reserve(version.encrypted_len(plain.len()));
        out.push(version.number());
        out.extend_from_slice(&nonce);
        let start = out.len();
        out.extend_from_slice(plain);
        let padding = version.padding(plain.len());
        out.resize(out.len() + padding, padding as u8); // At most one block.
        let text = out.get_mut(start..).unwrap_or_default();
        let nonce = aead::Nonce::assume_unique_for_key(nonce);
        let aad = aead::Aad::from(bound);
        let tag = self
            .primary
            .aead
            .seal_in_place_separate_tag(nonce, aad, text);
        out.extend_from_slice(tag.map_err(|_| Error::Encryption)?.as_ref());
        Ok(())
    }

    /// What `sealed` says, decrypted with whichever key fits.
    pub(super) fn open(&self, sealed: &[u8], bound: &[u8]) -> Result<Vec<u8>, Error> {
        let (version, rest) = sealed.split_first().ok_or(Error::Empty)?;
        let padded = match version {
            0 => true,
            1 => false,
            other => return Err(Error::EncryptionVersion(*other)),
        };
        let (nonce, rest) = rest.split_first_chunk().ok_or(Error::Truncated)?;
        let (text, tag) = rest.split_last_chunk::<TAG>().ok_or(Error::Truncated)?;
        let mut out = vec![0; text.len()];
        let opens = |key: &Key, out: &mut [u8]| {
            let nonce = aead::Nonce::assume_unique_for_key(*nonce);
            let aad = aead::Aad::from(bound);
            key.aead
                .open_separate_gather(nonce, aad, text, tag, out)
                .is_ok()
        };
        if !self.keys().any(|key| opens(key, &mut out)) {
            return Err(Error::NoKey);
        }
        if padded {
            unpad(&mut out)?;
        }
        Ok(out)
    }
}

fn unpad(text: &mut Vec<u8>) -> Result<(), Error> {
    let padding = usize::from(text.last().copied().ok_or(Error::Truncated)?);
    let len = text.len().checked_sub(padding);
    let len = len.filter(|_| (1..=BLOCK).contains(&padding));
    text.truncate(len.ok_or(Error::Truncated)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(keys: &[&[u8]]) -> Keyring {
        let mut ring = Keyring::new(Key::new(keys[0]).unwrap());
        for key in &keys[1..] {
            ring.install(Key::new(key).unwrap());
        }
        ring
    }

    fn sealed(ring: &Keyring, version: EncryptionVersion, plain: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        ring.seal(version, [7; 12], plain, b"head", &mut out)
            .unwrap();
        out
    }

    #[test]
    fn all_sizes_and_versions_round_trip() {
        for size in [16, 24, 32] {
            let ring = ring(&[&vec![size as u8; size]]);
            for version in [EncryptionVersion::Padded, EncryptionVersion::Unpadded] {
                for len in [0, 1, 15, 16, 17, 1400] {
                    let plain = vec![9; len];
                    let sealed = sealed(&ring, version, &plain);
                    assert_eq!(sealed.len(), version.encrypted_len(len));
                    assert!(sealed.len() <= len + version.overhead());
                    assert_eq!(ring.open(&sealed, b"head"), Ok(plain));
                    assert_eq!(ring.open(&sealed, b"tail"), Err(Error::NoKey));
                }
            }
        }
        assert_eq!(Key::new(&[0; 17]), Err(Error::KeySize(17)));
    }

    /// Test case 4 of "The Galois/Counter Mode of Operation" (McGrew and Viega), without associated data: case 3.
    #[test]
    fn it_is_the_published_aes_gcm() {
        let key = hex("feffe9928665731c6d6a8f9467308308");
        let plain = hex(
            "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72\
             1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b391aafd255",
        );
        let nonce: Nonce = hex("cafebabefacedbaddecaf888").try_into().unwrap();
        let mut out = Vec::new();
        let version = EncryptionVersion::Unpadded;
        ring(&[&key])
            .seal(version, nonce, &plain, &[], &mut out)
            .unwrap();
        assert_eq!(out[13..17], hex("42831ec2"));
        assert_eq!(
            out[out.len() - 16..],
            hex("4d5c2af327cd64a62cf35abd2ba6fab4")
        );
    }

    fn hex(text: &str) -> Vec<u8> {
        let digit = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
        (0..text.len()).step_by(2).map(digit).collect()
    }

    #[test]
    fn keys_are_rotated() {
        let (old, new) = ([1; 16], [2; 32]);
        let before = sealed(&ring(&[&old]), EncryptionVersion::Unpadded, b"text");
        let mut ring = ring(&[&old]);
        assert_eq!(ring.use_key(&new), Err(Error::KeyUnknown));
        ring.install(Key::new(&new).unwrap());
        ring.install(Key::new(&new).unwrap());
        ring.use_key(&new).unwrap();
        assert_eq!(ring.primary().as_bytes(), new);
        assert_eq!(ring.keys().count(), 2);
        assert_eq!(ring.open(&before, b"head"), Ok(b"text".to_vec()));
        assert_eq!(ring.remove(&new), Err(Error::KeyPrimary));
        ring.remove(&old).unwrap();
        assert_eq!(ring.open(&before, b"head"), Err(Error::NoKey));
    }

    #[test]
    fn what_is_not_encrypted_is_refused() {
        let ring = ring(&[&[1; 16]]);
        assert_eq!(ring.open(&[], &[]), Err(Error::Empty));
        assert_eq!(ring.open(&[2; 50], &[]), Err(Error::EncryptionVersion(2)));
        assert_eq!(ring.open(&[1; 28], &[]), Err(Error::Truncated));
        assert!(!format!("{ring:?}").contains(", 1"));
    }
}
