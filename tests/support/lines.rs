//! What this thread logs, for tests of what is said and what is not.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use tracing::subscriber::DefaultGuard;
use tracing_subscriber::fmt::MakeWriter;

/// The log lines of this thread, from the first call on until it is dropped.
pub(crate) struct Lines {
    text: Text,
    _guard: DefaultGuard,
}

#[derive(Clone, Default)]
struct Text(Arc<Mutex<Vec<u8>>>);

impl Lines {
    pub(crate) fn take() -> Self {
        let text = Text::default();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::DEBUG)
            .with_ansi(false)
            .with_writer(text.clone())
            .finish();
        Self {
            text,
            _guard: tracing::subscriber::set_default(subscriber),
        }
    }

    /// Those of pgevict that hold this text.
    pub(crate) fn with(&self, wanted: &str) -> Vec<String> {
        let text = String::from_utf8_lossy(&self.text.0.lock().unwrap()).into_owned();
        text.lines()
            .filter(|line| line.contains(" pgevict") && line.contains(wanted))
            .map(str::to_owned)
            .collect()
    }
}

impl Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Text {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}
