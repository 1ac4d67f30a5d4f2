//! Certificates made for one test.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

/// An authority, and a folder for the files that it hands out.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    folder: TempDir,
}

/// Certificate and key, both PEM.
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .distinguished_name
            .push(DnType::CommonName, "authority of one test");
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            issuer: Issuer::new(params, key),
            pem,
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// A certificate for these host names; the common name is what a client certificate is known by.
    pub(crate) fn issue(&self, names: &[&str], common: &str) -> Pair {
        let key = KeyPair::generate().unwrap();
        let names: Vec<_> = names.iter().map(|name| name.to_string()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name.push(DnType::CommonName, common);
        Pair {
            certificate: params.signed_by(&key, &self.issuer).unwrap().pem(),
            key: key.serialize_pem(),
        }
    }

    pub(crate) fn pem(&self) -> &str {
        &self.pem
    }

    /// The file for `sslrootcert`.
    pub(crate) fn root(&self) -> PathBuf {
        self.file("root.crt", &self.pem)
    }

    /// A file that nobody else may read.
    pub(crate) fn file(&self, name: &str, contents: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, contents).unwrap();
        set_mode(&path, 0o600);
        path
    }
}

pub(crate) fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}
