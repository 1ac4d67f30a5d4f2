//! How a session is encrypted: rustls with ring, or nothing without the feature `tls`.

use std::io;

use tokio_postgres::Socket;
use tokio_postgres::tls::MakeTlsConnect;

use crate::error::Error;
#[cfg(feature = "tls")]
use crate::error::Result;
use crate::store::failure;

#[cfg(feature = "tls")]
mod verify;

#[cfg(feature = "tls")]
pub(crate) use with::{MakeTls, maker, none};
#[cfg(not(feature = "tls"))]
pub(crate) use without::{MakeTls, maker, none};

/// Whether this build has TLS.
pub(crate) const AVAILABLE: bool = cfg!(feature = "tls");

/// The stream of an encrypted session.
pub(crate) type Stream = <MakeTls as MakeTlsConnect<Socket>>::Stream;

/// True when the other way of `sslmode` `allow` or `prefer` may work: the handshake failed, or the server turned us
/// away before it asked for a password. A wrong password is never sent a second time, in clear.
pub(crate) fn may_try_another_way(error: &tokio_postgres::Error) -> bool {
    match error.as_db_error() {
        Some(server) => server.code().code() == "28000",
        None => is_handshake(error),
    }
}

/// The library has no predicate for it.
fn is_handshake(error: &tokio_postgres::Error) -> bool {
    error.to_string() == "error performing TLS handshake"
}

/// As [`failure::failure`], with what went wrong in TLS. What waiting cannot cure is refused.
pub(crate) fn failure(doing: &str, error: tokio_postgres::Error) -> Error {
    if error.to_string() == "authentication error" {
        let what = match cause_of(&error) {
            Some(cause) => format!("{doing}: {cause}"),
            None => format!("{doing}: the server's way to ask for a password cannot be used"),
        };
        return Error::refused(what).because(error);
    }
    if let Some(what) = complaint(&error) {
        return Error::refused(format!("{doing}: {what}")).because(error);
    }
    failure::failure(doing, error)
}

fn cause_of(error: &tokio_postgres::Error) -> Option<String> {
    std::error::Error::source(error).map(ToString::to_string)
}

fn complaint(error: &tokio_postgres::Error) -> Option<String> {
    let cause = std::error::Error::source(error)?;
    if let Some(io) = cause.downcast_ref::<io::Error>() {
        #[cfg(feature = "tls")]
        if let Some(tls) = io.get_ref().and_then(|error| error.downcast_ref()) {
            return Some(verify::explain(tls));
        }
        return (io.kind() == io::ErrorKind::InvalidInput && is_handshake(error))
            .then(|| format!("TLS: {io}"));
    }
    is_handshake(error).then(|| format!("TLS: {cause}"))
}

#[cfg(not(feature = "tls"))]
mod without {
    use tokio_postgres::NoTls;

    use crate::config::Tls;
    use crate::error::Result;

    pub(crate) type MakeTls = NoTls;

    pub(crate) fn none() -> Result<MakeTls> {
        Ok(NoTls)
    }

    /// Whoever asks for TLS was refused when the address was read.
    pub(crate) fn maker(_: &Tls) -> Result<MakeTls> {
        Ok(NoTls)
    }
}

#[cfg(feature = "tls")]
mod with {
    use std::path::Path;
    use std::sync::Arc;

    use rustls::ClientConfig;
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use tokio_postgres_rustls::MakeRustlsConnect;

    use super::verify::{Names, Verifier};
    use super::{Error, Result};
    use crate::config::{Mode, Roots, Tls};

    pub(crate) type MakeTls = MakeRustlsConnect;

    /// For sessions that are not encrypted.
    pub(crate) fn none() -> Result<MakeTls> {
        let verifier = Verifier::new(Vec::new(), Names::Any);
        let config = ClientConfig::builder_with_provider(verifier.provider())
            .with_safe_default_protocol_versions()
            .map_err(unusable)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        Ok(MakeRustlsConnect::new(config))
    }

    /// Reads the files, so that a certificate that was renewed counts from the next connect on. Blocks.
    pub(crate) fn maker(tls: &Tls) -> Result<MakeTls> {
        if tls.mode == Mode::Disable {
            return none();
        }
        let roots = roots(tls)?;
        let verifier = match (tls.mode, roots) {
            (Mode::VerifyFull, Some(roots)) => Verifier::new(roots, Names::Certified),
            // As in libpq: whoever names roots wants the chain verified, whatever the mode.
            (_, Some(roots)) => Verifier::new(roots, Names::Any),
            (_, None) => Verifier::new(Vec::new(), Names::Any),
        };
        let builder = ClientConfig::builder_with_provider(verifier.provider())
            .with_safe_default_protocol_versions()
            .map_err(unusable)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let mut config = match &tls.client {
            Some(client) if client.named || client.cert.exists() => {
                let chain = certificates("sslcert", &client.cert)?;
                must_be_private(&client.key)?;
                let key = PrivateKeyDer::from_pem_file(&client.key)
                    .map_err(|error| unreadable("sslkey", &client.key, "an unencrypted PEM key", error))?;
                builder.with_client_auth_cert(chain, key).map_err(|error| {
                    let (cert, key) = (client.cert.display(), client.key.display());
                    Error::invalid(format!("sslkey {key} cannot be used with sslcert {cert}")).because(error)
                })?
            }
            _ => builder.with_no_client_auth(),
        };
        // Needed by sslnegotiation=direct, harmless otherwise.
        config.alpn_protocols = vec![b"postgresql".to_vec()];
        config.enable_sni = tls.sni;
        Ok(MakeRustlsConnect::new(config))
    }

    /// `None`: the certificate is not verified.
    fn roots(tls: &Tls) -> Result<Option<Vec<CertificateDer<'static>>>> {
        match &tls.roots {
            Roots::System => {
                let found = rustls_native_certs::load_native_certs();
                match found.errors.into_iter().next() {
                    Some(error) if found.certs.is_empty() => Err(Error::invalid(
                        "the platform's trusted certificates cannot be read",
                    )
                    .because(error)),
                    None if found.certs.is_empty() => {
                        Err(Error::invalid("sslrootcert=system: the platform trusts nobody"))
                    }
                    _ => Ok(Some(found.certs)),
                }
            }
            Roots::File(file) => certificates("sslrootcert", file).map(Some),
            Roots::Default(Some(file)) if file.exists() => certificates("sslrootcert", file).map(Some),
            Roots::Default(_) if tls.mode >= Mode::VerifyCa => Err(Error::invalid(
                "sslmode verify-ca and verify-full need sslrootcert: a file with the authority's certificate, or \
                 system",
            )),
            Roots::Default(_) => Ok(None),
        }
    }

    fn certificates(key: &str, file: &Path) -> Result<Vec<CertificateDer<'static>>> {
        let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let found = read.map_err(|error| unreadable(key, file, "PEM certificates", error))?;
        if found.is_empty() {
            return Err(Error::invalid(format!(
                "{key} {} holds no PEM certificate",
                file.display()
            )));
        }
        Ok(found)
    }

    fn unreadable(key: &str, file: &Path, what: &str, error: rustls::pki_types::pem::Error) -> Error {
        use rustls::pki_types::pem;
        let shown = file.display();
        match error {
            pem::Error::Io(error) => Error::invalid(format!("cannot read {key} {shown}")).because(error),
            // Its text quotes the file.
            _ => Error::invalid(format!("{key} {shown} holds no {what}")),
        }
    }

    /// libpq's rule: nobody else may read a key, but the group may read one of root's.
    fn must_be_private(key: &Path) -> Result<()> {
        use std::os::unix::fs::MetadataExt;
        let shown = key.display();
        let metadata = key
            .metadata()
            .map_err(|error| Error::invalid(format!("cannot read sslkey {shown}")).because(error))?;
        let open = if metadata.uid() == 0 { 0o037 } else { 0o077 };
        if metadata.mode() & open == 0 {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "sslkey {shown} can be read by others: chmod 0600, or 0640 if root owns it"
        )))
    }

    fn unusable(error: rustls::Error) -> Error {
        Error::refused("TLS cannot be used").because(error)
    }
}
