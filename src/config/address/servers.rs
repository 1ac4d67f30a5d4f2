//! The servers that an address names.

use std::net::IpAddr;

/// One server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Server {
    /// Name, IP address or socket folder; what a certificate must be for.
    pub(crate) host: String,
    /// Where it is, when it need not be looked up.
    pub(crate) addr: Option<IpAddr>,
    pub(crate) port: u16,
}

impl Server {
    /// True when it is reached over a Unix socket.
    pub(crate) fn is_socket(&self) -> bool {
        self.addr.is_none() && self.host.starts_with('/')
    }

    pub(super) fn add_to(&self, config: &mut tokio_postgres::Config) {
        config.host(&self.host).port(self.port);
        if let Some(addr) = self.addr {
            config.hostaddr(addr);
        }
    }
}

/// Puts the lists together: one port stands for all hosts, an empty item for the default. The error says what does
/// not fit, and to which key.
pub(super) fn pair(
    hosts: &[Option<String>],
    addrs: &[Option<IpAddr>],
    ports: &[Option<u16>],
) -> Result<Vec<Server>, (&'static str, String)> {
    let count = hosts.len().max(addrs.len()).max(1);
    let fits = |key, many: usize, alone: usize| {
        if many == 0 || many == count || many == alone {
            return Ok(());
        }
        Err((key, format!("has {many} items, but there are {count} hosts")))
    };
    fits("host", hosts.len(), 0)?;
    fits("hostaddr", addrs.len(), 0)?;
    fits("port", ports.len(), 1)?;
    let server = |n: usize| {
        let addr = addrs.get(n).copied().flatten();
        let host = match (hosts.get(n).cloned().flatten(), addr) {
            (Some(host), _) => host,
            (None, Some(addr)) => addr.to_string(),
            (None, None) => "localhost".to_owned(),
        };
        let port = ports.get(n).or(ports.first()).copied().flatten();
        Server {
            host,
            addr,
            port: port.unwrap_or(5432),
        }
    };
    Ok((0..count).map(server).collect())
}
