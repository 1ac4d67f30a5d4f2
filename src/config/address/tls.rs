//! What an address says about TLS, with libpq's meanings.

use std::path::PathBuf;

/// `sslmode`. The order is that of strength.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mode {
    /// Never.
    Disable,
    /// Only when the server refuses us without.
    Allow,
    /// When it can be had.
    Prefer,
    /// Always; the certificate is verified when there are roots to verify it against.
    Require,
    /// Always, with a certificate of a trusted authority.
    VerifyCa,
    /// The same, and it must be for the host that was asked for.
    VerifyFull,
}

/// Who is trusted to sign a server's certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Roots {
    /// Whom the platform trusts.
    System,
    /// Whoever is in this file.
    File(PathBuf),
    /// Whoever is in this file if it is there: `~/.postgresql/root.crt`.
    Default(Option<PathBuf>),
}

/// Our certificate and its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Client {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
    /// False: these are the default files, and nothing is sent when the certificate is not there.
    pub(crate) named: bool,
}

/// All of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tls {
    pub(crate) mode: Mode,
    pub(crate) roots: Roots,
    pub(crate) client: Option<Client>,
    /// The name is sent in clear, for proxies that route by it.
    pub(crate) sni: bool,
}

/// What was said, before defaults.
#[derive(Debug, Default)]
pub(super) struct Said {
    pub(super) mode: Option<Mode>,
    pub(super) root: Option<String>,
    pub(super) cert: Option<String>,
    pub(super) key: Option<String>,
    pub(super) sni: Option<bool>,
    pub(super) direct: bool,
    pub(super) bound: bool,
}

pub(super) fn mode(value: &str) -> Result<Mode, String> {
    Ok(match value {
        "disable" => Mode::Disable,
        "allow" => Mode::Allow,
        "prefer" => Mode::Prefer,
        "require" => Mode::Require,
        "verify-ca" => Mode::VerifyCa,
        "verify-full" => Mode::VerifyFull,
        _ => {
            return Err("must be disable, allow, prefer, require, verify-ca or verify-full".to_owned());
        }
    })
}

impl Said {
    /// Adds the defaults; the error names the key that does not fit.
    pub(super) fn finish(self, home: Option<PathBuf>) -> Result<Tls, (&'static str, String)> {
        let system = self.root.as_deref() == Some("system");
        let default = if system { Mode::VerifyFull } else { Mode::Prefer };
        let mode = self.mode.unwrap_or(default);
        if system && mode != Mode::VerifyFull {
            return Err((
                "sslrootcert",
                "system needs sslmode=verify-full: anybody can get a certificate that the platform trusts"
                    .to_owned(),
            ));
        }
        if self.direct && mode < Mode::Require {
            return Err((
                "sslnegotiation",
                "direct needs sslmode=require or stronger".to_owned(),
            ));
        }
        if !cfg!(feature = "tls") {
            self.refuse(mode)?;
        }
        let folder = home.map(|home| home.join(".postgresql"));
        let default = |name: &str| folder.as_ref().map(|folder| folder.join(name));
        let roots = match self.root {
            Some(_) if system => Roots::System,
            Some(file) => Roots::File(file.into()),
            None => Roots::Default(default("root.crt")),
        };
        let named = self.cert.is_some() || self.key.is_some();
        let cert = self.cert.map(PathBuf::from).or_else(|| default("postgresql.crt"));
        let key = self.key.map(PathBuf::from).or_else(|| default("postgresql.key"));
        let client = match (cert, key) {
            (Some(cert), Some(key)) => Some(Client { cert, key, named }),
            (None, Some(_)) => return Err(("sslkey", "needs sslcert".to_owned())),
            (Some(_), None) => return Err(("sslcert", "needs sslkey".to_owned())),
            (None, None) => None,
        };
        Ok(Tls {
            mode,
            roots,
            client,
            sni: self.sni.unwrap_or(true),
        })
    }

    /// Without the feature what asks for TLS is refused, so that nobody believes to have it.
    fn refuse(&self, mode: Mode) -> Result<(), (&'static str, String)> {
        let asks = [
            ("sslmode", mode >= Mode::Require),
            ("channel_binding", self.bound),
            ("sslrootcert", self.root.is_some()),
            ("sslcert", self.cert.is_some()),
            ("sslkey", self.key.is_some()),
        ];
        match asks
            .into_iter()
            .find(|(_, asked)| *asked && mode != Mode::Disable)
        {
            Some((key, _)) => Err((
                key,
                "needs TLS, which this build has not: enable the crate's feature `tls`".to_owned(),
            )),
            None => Ok(()),
        }
    }
}
