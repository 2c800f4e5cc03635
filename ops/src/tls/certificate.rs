//! Where the certificate comes from.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use rustls::{crypto::ring::sign::any_supported_type, sign::CertifiedKey};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

/// The largest file read, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file cannot be read.
    #[error("{path}: {error}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A file holds no certificate, or no key.
    #[error("{path} does not hold {wanted} in PEM form: {reason}")]
    Pem {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        wanted: &'static str,
        /// Why not.
        reason: String,
    },
    /// The certificate and the key do not fit each other, or the key is of an unknown kind.
    #[error("certificate and key cannot be used: {0}")]
    Tls(#[from] rustls::Error),
    /// No self-signed certificate could be made.
    #[error("cannot make a certificate: {0}")]
    SelfSigned(#[from] rcgen::Error),
}

/// A pair of files, or a certificate made here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateSource {
    /// Made anew by each process, signed by itself. The official clients accept any.
    SelfSigned,
    /// PEM files: the chain, the server's own first, and the key.
    Files {
        /// The chain.
        certificate: PathBuf,
        /// The key, not encrypted.
        key: PathBuf,
    },
}

/// What tells one state of a file from another.
pub(super) type Fingerprint = (u64, u64, i64, i64);

/// `None`: the file is not there at this moment.
pub(super) fn fingerprint(path: &Path) -> Option<Fingerprint> {
    let meta = fs::metadata(path).ok()?;
    Some((meta.ino(), meta.size(), meta.mtime(), meta.mtime_nsec()))
}

impl CertificateSource {
    pub(super) fn load(&self) -> Result<CertifiedKey, CertificateError> {
        let (chain, key) = match self {
            Self::SelfSigned => {
                let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
                let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
                (vec![made.cert.der().clone()], key)
            }
            Self::Files { certificate, key } => (read_chain(certificate)?, read_key(key)?),
        };
        let certified = CertifiedKey::new(chain, any_supported_type(&key)?);
        match certified.keys_match() {
            Ok(()) | Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) => Ok(certified),
            Err(error) => Err(error.into()),
        }
    }

    /// `None` where nothing can change, or a file is not there at this moment.
    pub(super) fn fingerprint(&self) -> Option<[Fingerprint; 2]> {
        let Self::Files { certificate, key } = self else { return None };
        Some([fingerprint(certificate)?, fingerprint(key)?])
    }
}

pub(super) fn read(path: &Path) -> Result<Vec<u8>, CertificateError> {
    let file = |error| CertificateError::File { path: path.to_owned(), error };
    let meta = fs::metadata(path).map_err(file)?;
    if !meta.is_file() {
        // Opening a named pipe would wait for whoever writes to it.
        return Err(file(io::Error::new(io::ErrorKind::InvalidInput, "not a file")));
    }
    let size = meta.len();
    if size > FILE_BYTES_MAX {
        return Err(file(io::Error::new(io::ErrorKind::FileTooLarge, format!("{size} bytes"))));
    }
    fs::read(path).map_err(file)
}

fn read_chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    certificates(&read(path)?).map_err(|reason| CertificateError::Pem {
        path: path.to_owned(),
        wanted: "a certificate",
        reason,
    })
}

/// The certificates of a PEM text, at least one; or why there is none.
pub(super) fn certificates(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    let all = all.map_err(|error| error.to_string())?;
    if all.is_empty() { Err("there is none".to_owned()) } else { Ok(all) }
}

fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, CertificateError> {
    PrivateKeyDer::from_pem_slice(&read(path)?).map_err(|error| CertificateError::Pem {
        path: path.to_owned(),
        wanted: "a private key",
        reason: error.to_string(),
    })
}
