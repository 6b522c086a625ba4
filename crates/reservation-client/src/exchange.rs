//! One request over a connection of its own.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The longest response that is read, in bytes: more than a proxy sends.
const MAX_RESPONSE_BYTES: usize = 16 << 20;

/// Why there is no response. Whether the request took effect is not known.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExchangeError {
    #[error("could not connect: {0}")]
    Connect(#[source] io::Error),
    #[error("{0}")]
    Http(#[from] hyper::Error),
    #[error("could not read the response: {0}")]
    Body(Box<dyn std::error::Error + Send + Sync>),
}

/// Sends a request to the proxy at `host:port`. Dropping the future cuts the connection.
pub(crate) async fn exchange(
    address: &str,
    tls: Option<&Arc<ClientConfig>>,
    request: Request<Full<Bytes>>,
) -> Result<Response<Bytes>, ExchangeError> {
    let socket = TcpStream::connect(address).await.map_err(ExchangeError::Connect)?;
    socket.set_nodelay(true).map_err(ExchangeError::Connect)?;
    match tls {
        None => over(socket, request).await,
        Some(config) => {
            let name = ServerName::try_from(host_of(address).to_owned())
                .map_err(|error| ExchangeError::Connect(io::Error::new(io::ErrorKind::InvalidInput, error)))?;
            let stream = TlsConnector::from(Arc::clone(config)).connect(name, socket).await;
            over(stream.map_err(ExchangeError::Connect)?, request).await
        }
    }
}

async fn over<S>(stream: S, request: Request<Full<Bytes>>) -> Result<Response<Bytes>, ExchangeError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let exchange = async {
        let response = sender.send_request(request).await?;
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, MAX_RESPONSE_BYTES).collect().await.map_err(ExchangeError::Body)?;
        Ok(Response::from_parts(parts, body.to_bytes()))
    };
    let mut exchange = std::pin::pin!(exchange);
    tokio::select! {
        response = &mut exchange => response,
        // A connection that ends first has passed on all that it received.
        _ = connection => exchange.await,
    }
}

/// The host of `host:port`, without the brackets of an IPv6 address.
fn host_of(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_an_address_has_no_port_and_no_brackets() {
        for (address, host) in [("a.b:10009", "a.b"), ("[::1]:10009", "::1"), ("10.0.0.1:1", "10.0.0.1")] {
            assert_eq!(host_of(address), host);
        }
    }
}
