//! The advertised address: what the operator configured, or the listen address.
//!
//! Invariant: it names one machine. `0.0.0.0` and `[::]` mean "all interfaces" to a listener and "localhost" to a
//! client, so they are refused here, with the configuration key to set.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use crate::error::{ErrorKind, UserError};

/// The longest host name, in bytes.
const MAX_HOST_BYTES: usize = 253;

/// An endpoint to connect to. Printed as `host:port`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advertised {
    /// A name or an address; an IPv6 address is in brackets, as it must be before a port.
    pub host: String,
    pub port: u16,
}

impl fmt::Display for Advertised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl Advertised {
    /// From the text of a configuration key: `host`, `host:port`, or empty for the listen address. An IPv6 address
    /// needs brackets only before a port.
    pub fn new(key: &str, text: &str, listens: SocketAddr) -> Result<Self, UserError> {
        let hint = format!(
            "Set {key} to a host name or address of this machine that others can reach, with or without a port."
        );
        let refused = |what: String| UserError::new(ErrorKind::InvalidValue, what).hint(hint.clone());
        let (host, port) = if text.is_empty() {
            (print(listens.ip()), listens.port())
        } else {
            let unclear = || refused(format!("invalid {key} \"{text}\": expected HOST or HOST:PORT"));
            split(text).map(|(host, port)| (host, port.unwrap_or(listens.port()))).ok_or_else(unclear)?
        };
        let everywhere = host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok_and(|ip| ip.is_unspecified());
        if everywhere {
            let what = if text.is_empty() {
                format!("{key} is empty and the listen address is {listens}")
            } else {
                format!("{key} is \"{text}\"")
            };
            return Err(refused(format!("{what}, which stands for all interfaces and cannot be connected to")));
        }
        Ok(Self { host, port })
    }
}

fn print(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    }
}

fn split(text: &str) -> Option<(String, Option<u16>)> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return (address.port() > 0).then(|| (print(address.ip()), Some(address.port())));
    }
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    if let Ok(ip) = bare.unwrap_or(text).parse::<IpAddr>() {
        return (bare.is_none() || ip.is_ipv6()).then(|| (print(ip), None));
    }
    let (host, port) = match text.split_once(':') {
        Some((host, port)) => (host, Some(port.parse::<u16>().ok().filter(|port| *port > 0)?)),
        None => (text, None),
    };
    let letter = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let is_name = !host.is_empty() && host.len() <= MAX_HOST_BYTES && host.chars().all(letter);
    is_name.then(|| (host.to_owned(), port))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    const KEY: &str = "proxy.advertise";

    fn parse(text: &str, listens: &str) -> Result<String, UserError> {
        Advertised::new(KEY, text, listens.parse().unwrap()).map(|advertised| advertised.to_string())
    }

    #[test]
    fn hosts_ports_and_addresses_of_both_kinds_are_parsed() {
        for (text, listens, wanted) in [
            ("", "127.0.0.1:10009", "127.0.0.1:10009"),
            ("", "[::1]:10009", "[::1]:10009"),
            ("db-1.example_x.org", "0.0.0.0:7", "db-1.example_x.org:7"),
            ("db1:99", "0.0.0.0:7", "db1:99"),
            ("10.0.0.1", "0.0.0.0:7", "10.0.0.1:7"),
            ("10.0.0.1:99", "0.0.0.0:7", "10.0.0.1:99"),
            ("::1", "[::]:7", "[::1]:7"),
            ("[::1]", "[::]:7", "[::1]:7"),
            ("[fe80::2]:99", "[::]:7", "[fe80::2]:99"),
            // An address, not a shorter one with a port.
            ("fe80::2:99", "[::]:7", "[fe80::2:99]:7"),
        ] {
            assert_eq!(parse(text, listens).unwrap(), wanted, "{text}");
        }
    }

    #[test]
    fn an_invalid_address_is_refused_with_its_key() {
        for text in [
            "a b",
            ":99",
            "host:",
            "host:0",
            "host:65536",
            "a:b:c",
            "[10.0.0.1]",
            "[::1",
            "::1]:5",
            "10.0.0.1:0",
            "h/x",
            "é",
        ] {
            let error = parse(text, "127.0.0.1:7").unwrap_err();
            assert_eq!(error.sqlstate(), "22023", "{text}");
            assert!(error.message.contains(KEY) && error.message.contains(text), "{error}");
        }
        assert!(parse(&"a".repeat(MAX_HOST_BYTES + 1), "127.0.0.1:7").is_err());
    }

    #[test]
    fn an_unspecified_address_is_refused() {
        for (text, listens) in [
            ("", "0.0.0.0:7"),
            ("", "[::]:7"),
            ("0.0.0.0", "127.0.0.1:7"),
            ("[::]:99", "127.0.0.1:7"),
            ("::", "127.0.0.1:7"),
        ] {
            let error = parse(text, listens).unwrap_err();
            assert!(error.text().contains("Hint: Set proxy.advertise"), "{text} {listens}: {error}");
        }
    }
}
