//! Whether a server's certificate is good enough, by libpq's rules.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

/// Whose certificate it may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Names {
    /// Anybody's that the roots signed: `verify-ca`.
    Any,
    /// The host's that was asked for: `verify-full`.
    Certified,
}

/// Without roots any certificate is taken; that the server has its key is proved all the same.
#[derive(Debug)]
pub(super) struct Verifier {
    provider: Arc<CryptoProvider>,
    given: Vec<CertificateDer<'static>>,
    roots: RootCertStore,
    names: Names,
}

impl Verifier {
    pub(super) fn new(given: Vec<CertificateDer<'static>>, names: Names) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(given.iter().cloned());
        Self {
            provider: Arc::new(ring::default_provider()),
            given,
            roots,
            names,
        }
    }

    pub(super) fn provider(&self) -> Arc<CryptoProvider> {
        self.provider.clone()
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.given.is_empty() {
            return Ok(ServerCertVerified::assertion());
        }
        let parsed = ParsedCertificate::try_from(certificate)?;
        let chain = verify_server_cert_signed_by_trust_anchor(
            &parsed,
            &self.roots,
            intermediates,
            now,
            self.provider.signature_verification_algorithms.all,
        );
        match chain {
            // A self-signed certificate calls itself an authority, which may not be a server's; but this one was
            // named to be trusted.
            Err(error) if self.given.contains(certificate) && !is_out_of_date(&error) => {}
            chain => chain?,
        }
        if self.names == Names::Certified {
            verify_server_name(&parsed, name)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

fn is_out_of_date(error: &Error) -> bool {
    use CertificateError::{Expired, ExpiredContext, NotValidYet, NotValidYetContext};
    matches!(
        error,
        Error::InvalidCertificate(Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. })
    )
}

/// What is wrong, and what to do.
pub(super) fn explain(error: &Error) -> String {
    use CertificateError::{BadSignature, NotValidForName, NotValidForNameContext, UnknownIssuer};
    match error {
        // A bad signature: an authority of the same name has another key.
        Error::InvalidCertificate(UnknownIssuer | BadSignature) => {
            "the server's certificate is not signed by an authority in sslrootcert".to_owned()
        }
        Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. }) => {
            format!(
                "the server's certificate is not for this host, which sslmode=verify-full asks for: {error}"
            )
        }
        Error::InvalidCertificate(_) => format!("the server's certificate cannot be trusted: {error}"),
        Error::AlertReceived(_) => {
            format!("the server refused TLS, perhaps our certificate (sslcert): {error}")
        }
        _ => format!("TLS: {error}"),
    }
}
