//! A client of REST: each request over a connection of its own, as curl sends it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::cluster::Cluster;
use crate::fixture::within;

/// A request of a user, which is sent when it is awaited.
#[derive(Clone)]
pub struct Rest {
    address: std::net::SocketAddr,
    user: String,
}

/// A response.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    pub status: u16,
    headers: Vec<(String, String)>,
    pub text: String,
    /// NULL for a body that is no JSON.
    pub body: Value,
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub fn rows(&self) -> &Vec<Value> {
        self.body["rows"].as_array().unwrap_or_else(|| panic!("no rows: {self:?}"))
    }

    /// The values of a column as text.
    pub fn column(&self, name: &str) -> Vec<String> {
        let text = |row: &Value| row[name].as_str().unwrap_or_else(|| panic!("no text {name}: {row}")).to_owned();
        self.rows().iter().map(text).collect()
    }

    pub fn sqlstate(&self) -> &str {
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{self:?}");
        assert_eq!(self.body["status"], self.status, "{self:?}");
        self.body["sqlstate"].as_str().unwrap()
    }

    /// Fails unless the request succeeded with this status.
    pub fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.text);
        self
    }
}

impl Rest {
    pub fn new(cluster: &Cluster, user: &str) -> Self {
        Self { address: cluster.proxy.addr(), user: user.to_owned() }
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.send("GET", path, &[], None).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Reply {
        self.post_as(path, body, None).await
    }

    /// With an idempotency key.
    pub async fn post_as(&self, path: &str, body: &Value, key: Option<&str>) -> Reply {
        let headers: Vec<(&str, &str)> = key.map(|key| ("Idempotency-Key", key)).into_iter().collect();
        self.send("POST", path, &headers, Some(body.to_string())).await
    }

    pub async fn run(&self, statement: &str) -> Reply {
        self.post("/api/v1/statements", &serde_json::json!({ "statement": statement })).await
    }

    pub async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Option<String>) -> Reply {
        within(path, read(self.open(method, path, headers, body).await)).await
    }

    /// Sends a request and returns its connection.
    pub async fn open(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Option<String>) -> TcpStream {
        let credentials = STANDARD.encode(format!("{}:x", self.user));
        let mut head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic {credentials}\r\nConnection: close\r\n"
        );
        for (name, value) in headers {
            head.extend([*name, ": ", *value, "\r\n"]);
        }
        if let Some(body) = &body {
            if !headers.iter().any(|(name, _)| *name == "Content-Type") {
                head.push_str("Content-Type: application/json\r\n");
            }
            head.extend(["Content-Length: ", &body.len().to_string(), "\r\n"]);
        }
        head.push_str("\r\n");
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(body.unwrap_or_default().as_bytes()).await.unwrap();
        stream
    }
}

/// Reads a response to the end of its connection.
pub async fn read(mut stream: TcpStream) -> Reply {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let (head, text) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no response: {text}"));
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers = lines.filter_map(|line| line.split_once(": ")).map(|(k, v)| (k.to_lowercase(), v.to_owned()));
    Reply {
        status,
        headers: headers.collect(),
        text: text.to_owned(),
        body: serde_json::from_str(text).unwrap_or_default(),
    }
}
