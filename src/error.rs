//! The one error of this crate.
//!
//! It is opaque: callers branch on predicates ([`Error::is_unreachable`] and so on), people read the
//! message and the chain of causes. Expected outcomes (a refused fill, a stale hit) are enums, not errors.
//! No message holds a password: addresses are printed without their secrets.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

/// Result with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, with its chain of causes.
///
/// `Display` is the message; `Debug` adds the class and those causes that say something new, on one line.
pub struct Error(Box<Inner>);

struct Inner {
    kind: Kind,
    message: String,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Invalid,
    Unreachable,
    Refused,
    Standby,
    Timeout,
    Database,
    Loader,
    Stale,
}

impl Error {
    /// Input or configuration that cannot be used; the message names the field and the cure.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Kind::Invalid, message)
    }

    /// The server cannot be reached, or the connection was lost.
    pub(crate) fn unreachable(message: impl Into<String>) -> Self {
        Self::new(Kind::Unreachable, message)
    }

    /// The state, the server's version or the caller's rights do not allow it; the message says what would.
    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self::new(Kind::Refused, message)
    }

    /// The server is a standby: neither LISTEN nor a cursor is right there.
    pub(crate) fn standby(message: impl Into<String>) -> Self {
        Self::new(Kind::Standby, message)
    }

    /// A deadline passed.
    pub(crate) fn timeout(message: impl Into<String>) -> Self {
        Self::new(Kind::Timeout, message)
    }

    /// The database answered with an error that has no class of its own here.
    pub(crate) fn database(message: impl Into<String>) -> Self {
        Self::new(Kind::Database, message)
    }

    /// The caller's loader failed or panicked.
    pub(crate) fn loader(message: impl Into<String>) -> Self {
        Self::new(Kind::Loader, message)
    }

    /// What is held cannot be proved fresh, and the policy is to fail then.
    pub(crate) fn stale(message: impl Into<String>) -> Self {
        Self::new(Kind::Stale, message)
    }

    fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            kind,
            message: message.into(),
            source: None,
        }))
    }

    /// Adds the cause.
    #[must_use]
    pub(crate) fn because(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(Arc::from(source.into()));
        self
    }

    /// Adds a cause that others hold as well.
    #[must_use]
    pub(crate) fn because_shared(mut self, source: Arc<dyn StdError + Send + Sync>) -> Self {
        self.0.source = Some(source);
        self
    }

    /// The same for one more who is concerned.
    pub(crate) fn shared(error: &Arc<Self>) -> Self {
        Self::new(error.0.kind, error.to_string()).because_shared(error.clone())
    }

    /// Input or configuration is wrong; trying again without a change will fail again.
    pub fn is_invalid(&self) -> bool {
        self.0.kind == Kind::Invalid
    }

    /// The server cannot be reached or the connection was lost; trying again later may help.
    pub fn is_unreachable(&self) -> bool {
        self.0.kind == Kind::Unreachable
    }

    /// The state, the server or the caller's rights do not allow it.
    pub fn is_refused(&self) -> bool {
        matches!(self.0.kind, Kind::Refused | Kind::Standby)
    }

    /// The address leads to a standby.
    pub fn is_standby(&self) -> bool {
        self.0.kind == Kind::Standby
    }

    /// A deadline passed; whether the work was done is unknown.
    pub fn is_timeout(&self) -> bool {
        self.0.kind == Kind::Timeout
    }

    /// The loader of a cache failed or panicked; its own error is the cause.
    pub fn is_loader(&self) -> bool {
        self.0.kind == Kind::Loader
    }

    /// A cached value cannot be proved fresh, and the cache was told to fail then.
    pub fn is_stale(&self) -> bool {
        self.0.kind == Kind::Stale
    }

    /// SQLSTATE of the database error in the chain of causes, when there is one.
    pub fn sqlstate(&self) -> Option<&str> {
        let mut cause = self.source();
        while let Some(error) = cause {
            if let Some(database) = error.downcast_ref::<tokio_postgres::Error>() {
                return database.code().map(tokio_postgres::error::SqlState::code);
            }
            cause = error.source();
        }
        None
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.0.message.clone();
        let mut cause = self.source();
        while let Some(error) = cause {
            let said = error.to_string();
            if !text.contains(&said) {
                text = format!("{text}: {said}");
            }
            cause = error.source();
        }
        write!(f, "{text} ({:?})", self.0.kind)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}
