//! What binds a password exchange to a TLS connection: a hash of the server's certificate,
//! `tls-server-end-point` of RFC 5929.

use ring::digest::{Algorithm, SHA256, SHA384, SHA512, digest};

const SEQUENCE: u8 = 0x30;
const OBJECT_IDENTIFIER: u8 = 0x06;

/// How certificates are signed, and the hash that goes with it. For the first three the hash of the signature is
/// too weak, and another is prescribed in its place. Those that hash in their own way, such as Ed25519, have none.
const ALGORITHMS: &[(&[u8], &Algorithm)] = &[
    (b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x04", &SHA256), // RSA with MD5
    (b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x05", &SHA256), // RSA with SHA-1
    (b"\x2a\x86\x48\xce\x3d\x04\x01", &SHA256),         // ECDSA with SHA-1
    (b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0b", &SHA256), // RSA with SHA-256
    (b"\x2a\x86\x48\xce\x3d\x04\x03\x02", &SHA256),     // ECDSA with SHA-256
    (b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0c", &SHA384), // RSA with SHA-384
    (b"\x2a\x86\x48\xce\x3d\x04\x03\x03", &SHA384),     // ECDSA with SHA-384
    (b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0d", &SHA512), // RSA with SHA-512
    (b"\x2a\x86\x48\xce\x3d\x04\x03\x04", &SHA512),     // ECDSA with SHA-512
];

/// The hash of a certificate; none if its kind has none.
pub(super) fn end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    let signed_by = signature_algorithm(certificate)?;
    let (_, algorithm) = ALGORITHMS.iter().find(|(identifier, _)| *identifier == signed_by)?;
    Some(digest(algorithm, certificate).as_ref().to_vec())
}

/// `Certificate ::= SEQUENCE { what is signed SEQUENCE, by SEQUENCE { algorithm OBJECT IDENTIFIER, … }, signature }`
fn signature_algorithm(certificate: &[u8]) -> Option<&[u8]> {
    let (certificate, _) = element(certificate, SEQUENCE)?;
    let (_, rest) = element(certificate, SEQUENCE)?;
    let (by, _) = element(rest, SEQUENCE)?;
    Some(element(by, OBJECT_IDENTIFIER)?.0)
}

/// The content of the first element of some DER, and what follows it.
fn element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&[found, length], mut rest) = der.split_first_chunk::<2>()?;
    let mut length = usize::from(length);
    if length >= 0x80 {
        let (digits, after) = rest.split_at_checked(length & 0x7f).filter(|(digits, _)| digits.len() <= 4)?;
        length = digits.iter().fold(0, |length, digit| (length << 8) | usize::from(*digit));
        rest = after;
    }
    rest.split_at_checked(length).filter(|_| found == tag)
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    fn certificate(algorithm: &'static rcgen::SignatureAlgorithm) -> Vec<u8> {
        let key = KeyPair::generate_for(algorithm).unwrap();
        let params = CertificateParams::new(vec!["db.postrider.test".to_owned()]).unwrap();
        params.self_signed(&key).unwrap().der().to_vec()
    }

    #[test]
    fn certificates_are_hashed_as_they_were_signed() {
        for (algorithm, length) in [
            (&rcgen::PKCS_ECDSA_P256_SHA256, Some(32)),
            (&rcgen::PKCS_ECDSA_P384_SHA384, Some(48)),
            (&rcgen::PKCS_ED25519, None),
        ] {
            let certificate = certificate(algorithm);
            assert_eq!(end_point(&certificate).map(|hash| hash.len()), length);
            for end in 0..certificate.len() {
                assert_eq!(end_point(&certificate[..end]), None, "it is cut short");
            }
        }
    }

    #[test]
    fn what_is_no_certificate_has_no_hash() {
        for bad in [&b""[..], b"0", b"0\x84\xff\xff\xff\xff", b"0\x89123456789", b"0\x040\x000\x00"] {
            assert_eq!(end_point(bad), None);
        }
    }
}
