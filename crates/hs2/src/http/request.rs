//! The head of a request: what is decided before the body is read.

use http::header::{
    AUTHORIZATION, CONTENT_ENCODING, CONTENT_LENGTH, EXPECT, HOST, HeaderName, ORIGIN, TRANSFER_ENCODING,
};
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode};
use model::error::{ErrorKind, UserError};

use super::authorization::{self, Authorization, BearerToken, Ticket};
use super::cookie;
use super::exchange::Client;
use super::refusal::Refusal;
use super::resource::{Resource, percent_decoded};
use crate::auth::{Authenticator, Credentials, Principal};

/// The parameter of a query that names the user on whose behalf the client sends the request.
const DO_AS: &str = "doAs";

/// The header in which Hive's drivers send a delegation token.
const DELEGATION_TOKEN: HeaderName = HeaderName::from_static("x-hive-delegation-token");

/// The header with the port to which Hive JDBC 4 with `auth=browser` wants to have a SAML response redirected. Such a request has no
/// credentials.
const TOKEN_RESPONSE_PORT: HeaderName = HeaderName::from_static("x-hive-token-response-port");

/// The longest part of a `Host` header that a response repeats.
const MAX_SHOWN_CHARS: usize = 255;

#[derive(Debug)]
pub(super) struct RequestHead {
    /// The length of the body in bytes; `None` if it comes in chunks.
    pub(super) length: Option<usize>,
    pub(super) expects_continue: bool,
    proof: Option<Proof>,
    /// The user on whose behalf the client sends the request.
    acts_for: Option<String>,
    host: Option<String>,
    has_origin: bool,
}

/// What a client sends to show who it is.
#[derive(Debug)]
enum Proof {
    Credentials(Credentials),
    Token(BearerToken),
    Ticket(Ticket),
    Cookie(String),
    /// Not accepted.
    DelegationToken,
    /// Not accepted: the client expects a redirect to an identity provider, for a login by SAML in a browser.
    Browser,
}

/// The sender of a request that may be served.
pub(super) struct Admitted {
    pub(super) principal: Principal,
    /// The value of `WWW-Authenticate` in the response, with which the server proves itself to a client with a ticket.
    pub(super) proof_of_server: Option<HeaderValue>,
}

/// The value of a header that may occur once.
fn single<'a>(head: &'a Parts, name: &HeaderName) -> Result<Option<&'a str>, Refusal> {
    let mut values = head.headers.get_all(name).iter();
    let value = values.next().map(|value| value.to_str());
    match (value, values.next()) {
        (Some(Err(_)), _) => Err(Refusal::bad_request("the head is not plain text")),
        (_, Some(_)) => Err(Refusal::bad_request(&format!("more than one {name} header"))),
        (value, None) => Ok(value.and_then(Result::ok).map(str::trim)),
    }
}

impl RequestHead {
    pub(super) fn new(head: &Parts, resource: Resource) -> Result<Self, Refusal> {
        match resource {
            Resource::Thrift if head.method != Method::POST => {
                let text = "this is a HiveServer2 listener: connect with a HiveServer2 client in HTTP mode";
                return Err(Refusal::method_not_allowed(text));
            }
            Resource::Api | Resource::Nothing if [Method::CONNECT, Method::TRACE].contains(&head.method) => {
                return Err(Refusal::method_not_allowed("the method is not served"));
            }
            _ => {}
        }
        if head.uri.authority().is_some() {
            return Err(Refusal::bad_request("the request names a server; only a path is valid"));
        }
        if head.headers.contains_key(CONTENT_ENCODING) {
            let error = UserError::new(ErrorKind::NotSupported, "compressed requests are not supported");
            return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, error));
        }
        let length = if let Some(encoding) = single(head, &TRANSFER_ENCODING)? {
            if !encoding.eq_ignore_ascii_case("chunked") {
                return Err(Refusal::bad_request("the transfer encoding is not supported"));
            }
            None
        } else {
            match (single(head, &CONTENT_LENGTH)?, resource) {
                // A length that does not fit is above every limit.
                (Some(length), _) => Some(length.parse().unwrap_or(usize::MAX)),
                (None, Resource::Thrift) => {
                    let error = UserError::new(ErrorKind::InvalidValue, "the request has no length");
                    return Err(Refusal::new(StatusCode::LENGTH_REQUIRED, error));
                }
                (None, _) => Some(0),
            }
        };
        let expects_continue = single(head, &EXPECT)?.is_some_and(|value| value.eq_ignore_ascii_case("100-continue"));
        // An Authorization header takes precedence.
        let proof = if let Some(value) = single(head, &AUTHORIZATION)? {
            Authorization::parse(value).map(|authorization| match authorization {
                Authorization::Basic(credentials) => Proof::Credentials(credentials),
                Authorization::Bearer(token) => Proof::Token(token),
                Authorization::Negotiate(ticket) => Proof::Ticket(ticket),
            })
        } else {
            let cookie = if resource == Resource::Thrift { cookie::value(head).map(Proof::Cookie) } else { None };
            let has = |name: &HeaderName| head.headers.contains_key(name);
            cookie
                .or_else(|| has(&DELEGATION_TOKEN).then_some(Proof::DelegationToken))
                .or_else(|| has(&TOKEN_RESPONSE_PORT).then_some(Proof::Browser))
        };
        Ok(Self {
            length,
            expects_continue,
            proof,
            acts_for: if matches!(resource, Resource::Probe(_)) { None } else { do_as(head.uri.query())? },
            host: single(head, &HOST)?.map(str::to_owned),
            has_origin: head.headers.contains_key(ORIGIN),
        })
    }

    /// The sender, if the request may be served.
    pub(super) async fn admit(&self, client: &Client) -> Result<Admitted, Refusal> {
        self.check_origin(&*client.authenticator)?;
        let mut proof_of_server = None;
        let authenticated = match &self.proof {
            Some(Proof::Credentials(credentials)) => {
                let authzid = self.acts_for.clone().unwrap_or_default();
                let credentials = Credentials { authzid, ..credentials.clone() };
                client.authenticator.authenticate(client.peer, &credentials).await
            }
            Some(Proof::Token(token)) => {
                let authzid = self.acts_for.as_deref().unwrap_or_default();
                client.authenticator.authenticate_bearer(client.peer, &token.0, authzid).await
            }
            Some(Proof::Ticket(ticket)) => self.accept(ticket, client, &mut proof_of_server).await,
            Some(Proof::Cookie(cookie)) => match client.authenticator.authenticate_cookie(cookie) {
                Ok(principal) if self.acts_for.as_ref().is_some_and(|user| *user != principal.user) => {
                    let text = "a request on behalf of another user needs credentials";
                    Err(UserError::new(ErrorKind::InvalidAuthorization, text))
                }
                authenticated => authenticated,
            },
            Some(Proof::DelegationToken) => {
                Err(authorization::unsupported("delegation tokens are not supported", &*client.authenticator))
            }
            Some(Proof::Browser) => {
                let text = "logins by SAML in a browser (auth=browser) are not supported";
                Err(authorization::unsupported(text, &*client.authenticator))
            }
            None => {
                let text = authorization::missing(&*client.authenticator);
                Err(UserError::new(ErrorKind::InvalidAuthorization, text))
            }
        };
        let principal = authenticated.map_err(Refusal::unauthorized)?;
        Ok(Admitted { principal, proof_of_server })
    }

    /// The holder of a ticket. One request has one token, so a client that needs to send a second one is refused.
    async fn accept(
        &self,
        ticket: &Ticket,
        client: &Client,
        proof_of_server: &mut Option<HeaderValue>,
    ) -> Result<Principal, UserError> {
        let mut context = client.authenticator.begin_ticket_login(client.peer)?;
        let step = context.step(&ticket.0).await?;
        if !step.is_established {
            let text = "the client offers another mechanism before Kerberos";
            return Err(UserError::new(ErrorKind::InvalidAuthorization, text)
                .hint("Get a ticket, with kinit, and use the host name of the service's principal."));
        }
        let authzid = self.acts_for.as_deref().unwrap_or_default();
        let principal = client.authenticator.authenticate_ticket(client.peer, context, authzid).await?;
        *proof_of_server = authorization::proof_of_server(&step.reply);
        Ok(principal)
    }

    /// Whether the client gets a cookie: one is not renewed by itself, and none stands for a token, which has an end and groups of
    /// its own.
    pub(super) fn earns_cookie(&self) -> bool {
        matches!(self.proof, Some(Proof::Credentials(_) | Proof::Ticket(_)))
    }

    /// Rejects a request that a web page of another site may have sent. Browsers send `Origin`, which no HiveServer2
    /// client does, and the name in `Host`: a page whose own name was pointed at this address (DNS rebinding) is
    /// rejected, because the server has another name ([`Authenticator::serves_host`]).
    fn check_origin(&self, authenticator: &dyn Authenticator) -> Result<(), Refusal> {
        if self.has_origin {
            let text = "requests of web pages are not served: the request has an Origin header";
            let error = UserError::new(ErrorKind::InvalidAuthorization, text);
            return Err(Refusal::new(StatusCode::FORBIDDEN, error));
        }
        let Some(host) = &self.host else { return Ok(()) };
        let name = name_in(host);
        if is_local(name) || authenticator.serves_host(name) {
            return Ok(());
        }
        let shown: String = host.chars().filter(|c| !c.is_control()).take(MAX_SHOWN_CHARS).collect();
        let error = UserError::new(ErrorKind::InvalidAuthorization, format!("host \"{shown}\" is not served here"))
            .hint("Connect with an IP address, or add the name to proxy.hosts.");
        Err(Refusal::new(StatusCode::MISDIRECTED_REQUEST, error))
    }
}

/// The user that the parameter `doAs` of a query names, in any case, as Apache Knox sends it for its users. One that does
/// not name one user is an error.
fn do_as(query: Option<&str>) -> Result<Option<String>, Refusal> {
    let mut user = None;
    for parameter in query.unwrap_or_default().split('&') {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        if !decoded(name).eq_ignore_ascii_case(DO_AS.as_bytes()) {
            continue;
        }
        let named = String::from_utf8(decoded(value)).ok().filter(|named| !named.is_empty());
        if named.is_none() || user.is_some() {
            let error = UserError::new(ErrorKind::InvalidAuthorization, "doAs does not name one user");
            return Err(Refusal::unauthorized(error));
        }
        user = named;
    }
    Ok(user)
}

/// A name or value in a query.
fn decoded(text: &str) -> Vec<u8> {
    percent_decoded(&text.replace('+', " "))
}

/// The name or address in a `Host` header, without its port.
fn name_in(host: &str) -> &str {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name)
}

/// Whether no other site can have this name: an address, or one of this machine's own names.
fn is_local(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    name.parse::<std::net::IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || rustix::system::uname().nodename().to_str().is_ok_and(|own| name.eq_ignore_ascii_case(own))
}
