//! Signatures of Standard Webhooks: `v1,` and HMAC-SHA-256 over the id, the time and the body.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use postrider_core::{Error, Result};
use sha2::Sha256;

use crate::Secret;

/// How secrets are written: this, and the key in Base64.
const PREFIX: &str = "whsec_";
/// What the specification asks for.
const KEY_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// Signs with every secret, so that a receiver may change to a new one at leisure.
#[derive(Clone)]
pub(super) struct Signer(Vec<Hmac<Sha256>>);

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Signer({} secrets)", self.0.len())
    }
}

impl Signer {
    /// Reads the secrets, newest first.
    pub(super) fn read(secrets: &[Secret]) -> Result<Self> {
        let key = |secret: &Secret| {
            let text = secret.read()?;
            let key = STANDARD.decode(text.expose().strip_prefix(PREFIX).unwrap_or(text.expose()));
            // The error of decoding would tell a part of it.
            let key = key.ok().filter(|key| KEY_BYTES.contains(&key.len())).ok_or_else(|| {
                Error::invalid("a signing secret is not `whsec_` and 24 to 64 bytes in Base64: make one, `whsec_$(openssl rand -base64 32)`")
            })?;
            Hmac::new_from_slice(&key)
                .map_err(|_| Error::invalid("a signing secret has a length that HMAC refuses"))
        };
        secrets.iter().map(key).collect::<Result<_>>().map(Self)
    }

    /// The header `webhook-signature`; none without secrets.
    pub(super) fn sign(&self, id: &str, timestamp: u64, body: &[u8]) -> Option<String> {
        let signature = |keyed: &Hmac<Sha256>| {
            let mut mac = keyed.clone();
            mac.update(id.as_bytes());
            mac.update(format!(".{timestamp}.").as_bytes());
            mac.update(body);
            format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
        };
        let signatures: Vec<_> = self.0.iter().map(signature).collect();
        Some(signatures.join(" ")).filter(|signatures| !signatures.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    const TIME: u64 = 1_614_265_330;
    const BODY: &[u8] = b"{\"test\": 2432232314}";
    /// As published with the specification's libraries.
    const SIGNATURE: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

    #[test]
    fn the_published_example_has_its_published_signature() {
        let sign = |secrets: &[&str]| {
            let secrets: Vec<_> = secrets.iter().map(|secret| secret.parse().unwrap()).collect();
            Signer::read(&secrets).unwrap().sign(ID, TIME, BODY)
        };
        assert_eq!(sign(&[SECRET]).as_deref(), Some(SIGNATURE));
        assert_eq!(sign(&[SECRET.strip_prefix(PREFIX).unwrap()]).as_deref(), Some(SIGNATURE));
        assert_eq!(sign(&[]), None);
        let both = sign(&["whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", SECRET]).unwrap();
        let (new, old) = both.split_once(' ').unwrap();
        assert!(new.starts_with("v1,") && new != SIGNATURE && old == SIGNATURE, "{both}");
    }

    #[test]
    fn what_is_no_secret_is_refused_and_not_repeated() {
        for bad in ["whsec_canary", "canary!", "whsec_Y2FuYXJ5", "whsec_"] {
            let error = Signer::read(&[Secret::here(bad)]).unwrap_err().to_string();
            assert!(!error.contains("canary") && !error.contains("Y2FuYXJ5"), "{error}");
        }
    }
}
