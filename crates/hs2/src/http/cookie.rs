//! The cookie `hive.server2.auth`, whose name JDBC expects: it authenticates the calls after a login.
//!
//! It authenticates calls in Thrift only, by their content type: a page of another site cannot send that one without
//! permission. It never leaves in clear text, except to this machine.

use http::header::{CONTENT_TYPE, COOKIE, SET_COOKIE};
use http::request::Parts;
use http::{HeaderValue, Response};

use super::exchange::Client;
use super::reply::ReplyBody;
use crate::auth::Principal;
use crate::limits::HTTP_COOKIE_LIFETIME;

const NAME: &str = "hive.server2.auth";

/// The content type of a call.
pub(super) const THRIFT: HeaderValue = HeaderValue::from_static("application/x-thrift");

/// The value of the cookie of a call in Thrift.
pub(super) fn value(head: &Parts) -> Option<String> {
    if head.headers.get(CONTENT_TYPE)? != THRIFT {
        return None;
    }
    let cookies = head.headers.get_all(COOKIE).iter().filter_map(|header| header.to_str().ok());
    let mut pairs = cookies.flat_map(|header| header.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == NAME).map(|(_, value)| value.trim_matches('"').to_owned())
}

/// Sends a cookie to a client that has logged in.
pub(super) fn set(client: &Client, principal: &Principal, response: &mut Response<ReplyBody>) {
    if !client.is_tls && !client.peer.ip().to_canonical().is_loopback() {
        return;
    }
    let Some(value) = client.authenticator.issue_cookie(principal) else { return };
    let (age, secure) = (HTTP_COOKIE_LIFETIME.as_secs(), if client.is_tls { "; Secure" } else { "" });
    let cookie = format!("{NAME}={value}; Path=/; Max-Age={age}; HttpOnly; SameSite=Strict{secure}");
    if let Ok(mut cookie) = HeaderValue::from_str(&cookie) {
        cookie.set_sensitive(true);
        response.headers_mut().insert(SET_COOKIE, cookie);
    }
}
