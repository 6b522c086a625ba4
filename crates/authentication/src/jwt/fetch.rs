//! One reading of the issuer's keys: a file, or a GET over a connection of its own. A redirection is not followed, because it could
//! lead to an address that is not protected.
//!
//! What an issuer sends is hostile input until the connection is verified, and limited after that.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use hs2::ClientTls;
use http::header::{ACCEPT, HOST, USER_AGENT};
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Empty, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use model::cause::Cause;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use url::{Position, Url};

use super::key_set::{KeySet, KeySetError, MAX_BYTES};
use super::settings::KeyLocation;

/// For one reading, the connection included.
pub(super) const DEADLINE: Duration = Duration::from_secs(5);
/// The buffer of a connection, in bytes: more than the head of a response needs.
const BUFFER_BYTES: usize = 64 << 10;

/// Keys cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error("the keys at {location} cannot be used: {source}")]
    Set { location: String, source: KeySetError },
    #[error("{0} does not respond within {DEADLINE:?}")]
    Timeout(Url),
    #[error("{0} responds with {1}")]
    Status(Url, StatusCode),
    #[error("{url}: {cause}")]
    Connection { url: Url, cause: Cause },
}

/// Reads the keys, within [`DEADLINE`].
pub(super) async fn read(location: &KeyLocation) -> Result<KeySet, KeysError> {
    let (bytes, shown) = match location {
        KeyLocation::File(path) => {
            let failed = |source| KeysError::File { path: path.clone(), source };
            (read_file(path).await.map_err(failed)?, path.display().to_string())
        }
        KeyLocation::Url { url, tls } => {
            let fetched = timeout(DEADLINE, get(url, tls)).await;
            (fetched.map_err(|_| KeysError::Timeout(url.clone()))??, url.to_string())
        }
    };
    KeySet::parse(&bytes).map_err(|source| KeysError::Set { location: shown, source })
}

/// At most one byte more than a key set may have.
async fn read_file(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    tokio::fs::File::open(path).await?.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes).await?;
    Ok(bytes)
}

async fn get(url: &Url, tls: &ClientTls) -> Result<Vec<u8>, KeysError> {
    let failed = |cause| KeysError::Connection { url: url.clone(), cause };
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let port = url.port_or_known_default().unwrap_or_default();
    let stream = TcpStream::connect((host, port)).await.map_err(|error| failed(error.into()))?;
    if url.scheme() == "http" {
        return request(url, stream).await;
    }
    let name = ServerName::try_from(host.to_owned()).map_err(|error| failed(error.into()))?;
    let stream = TlsConnector::from(tls.config()).connect(name, stream).await.map_err(|error| failed(error.into()))?;
    request(url, stream).await
}

async fn request<S>(url: &Url, stream: S) -> Result<Vec<u8>, KeysError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let failed = |cause| KeysError::Connection { url: url.clone(), cause };
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(BUFFER_BYTES)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| failed(error.into()))?;
    let request = Request::get(&url[Position::BeforePath..Position::AfterQuery])
        .header(HOST, &url[Position::BeforeHost..Position::AfterPort])
        .header(USER_AGENT, "enginehouse")
        .header(ACCEPT, "application/jwk-set+json, application/json")
        .body(Empty::<Bytes>::new())
        .map_err(|error| failed(error.into()))?;
    let exchange = async {
        let response = sender.send_request(request).await.map_err(|error| failed(error.into()))?;
        if response.status() != StatusCode::OK {
            return Err(KeysError::Status(url.clone(), response.status()));
        }
        let body = Limited::new(response.into_body(), MAX_BYTES).collect().await.map_err(|error| {
            if error.is::<LengthLimitError>() {
                return KeysError::Set { location: url.to_string(), source: KeySetError::TooLong };
            }
            failed(error.into())
        })?;
        Ok(body.to_bytes().to_vec())
    };
    let mut exchange = std::pin::pin!(exchange);
    tokio::select! {
        response = &mut exchange => response,
        // A connection that ends first has passed on all that it received.
        _ = connection => exchange.await,
    }
}
