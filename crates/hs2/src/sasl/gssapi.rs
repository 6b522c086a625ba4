//! The SASL mechanism GSSAPI (RFC 4752), with authentication alone: no message after the login is signed or encrypted, which is what
//! TLS does.
//!
//! Client and server exchange the tokens of a context until it is established. Then the server offers its security layers, in a message
//! that the context signs, and the client responds with its choice and an authorization id. A client that insists on a security layer
//! (`saslQop=auth-int` or `auth-conf` of Hive's drivers) aborts instead.

use std::net::SocketAddr;

use model::error::{ErrorKind, UserError};

use super::{BAD, COMPLETE, ERROR, Failed, OK, head, read, shown, unfit};
use crate::auth::{Authenticator, Principal};
use crate::wire::Wire;

pub(crate) const NAME: &str = "GSSAPI";

/// The most tokens of a client until its context is established. Kerberos needs one or two.
const MAX_TOKENS: usize = 8;

/// The offer of the server: the bit of "no security layer", and the longest message that it receives with one.
const OFFER: [u8; 4] = [NO_LAYER, 0, 0, 0];
const NO_LAYER: u8 = 1;

/// The server's side, after START.
pub(super) async fn accept(
    wire: &mut Wire,
    peer: SocketAddr,
    authenticator: &dyn Authenticator,
) -> Result<Principal, Failed> {
    let mut context = authenticator.begin_ticket_login(peer).map_err(Failed::Refused)?;
    let mut tokens = 0;
    loop {
        let token = response(wire).await?;
        let step = context.step(&token).await.map_err(Failed::Refused)?;
        if step.is_established {
            if !step.reply.is_empty() {
                challenge(wire, &step.reply).await?;
                // The client knows the server now, and has nothing to say.
                if !response(wire).await?.is_empty() {
                    return Err(unfit("the client has sent a token after the last one"));
                }
            }
            break;
        }
        tokens += 1;
        if tokens == MAX_TOKENS {
            return Err(unfit("the client has sent too many tokens"));
        }
        challenge(wire, &step.reply).await?;
    }
    let offer = context.wrap(&OFFER).await.map_err(Failed::Refused)?;
    challenge(wire, &offer).await?;
    let choice = match read(wire).await? {
        // Drivers abort here if they insist on a layer.
        (BAD | ERROR, reason) => return Err(Failed::Refused(aborted(&reason))),
        message => token(message)?,
    };
    let choice = context.unwrap(&choice).await.map_err(Failed::Refused)?;
    let authzid = authorization_id(&choice)?;
    authenticator.authenticate_ticket(peer, context, authzid).await.map_err(Failed::Refused)
}

async fn challenge(wire: &mut Wire, token: &[u8]) -> Result<(), Failed> {
    Ok(wire.write(&head(OK, token.len()), token).await?)
}

async fn response(wire: &mut Wire) -> Result<Vec<u8>, Failed> {
    token(read(wire).await?)
}

fn token(message: (u8, Vec<u8>)) -> Result<Vec<u8>, Failed> {
    match message {
        (OK | COMPLETE, token) => Ok(token),
        (BAD | ERROR, _) => Err(Failed::GivenUp),
        _ => Err(unfit("the SASL response has an unknown status")),
    }
}

/// The authorization id behind the client's choice of a security layer, which must be that there is none.
fn authorization_id(choice: &[u8]) -> Result<&str, Failed> {
    let malformed = || unfit("the choice of a security layer is malformed");
    let ([layer, ..], authzid) = choice.split_first_chunk::<4>().ok_or_else(malformed)?;
    if *layer != NO_LAYER {
        return Err(Failed::Refused(without_layers("the security layers of SASL are not supported")));
    }
    // Some clients end it like a string of C.
    std::str::from_utf8(authzid).map(|authzid| authzid.trim_end_matches('\0')).map_err(|_| malformed())
}

/// The error of a client that wants a security layer.
fn without_layers(text: &str) -> UserError {
    UserError::new(ErrorKind::NotSupported, text)
        .hint("Leave out saslQop, or set it to auth. TLS protects the connection: add ssl=true.")
}

/// The error of a client that has aborted after the offer, for a reason that is its own text.
fn aborted(reason: &[u8]) -> UserError {
    let error = without_layers("the client has aborted the login because no security layer of SASL is offered");
    match shown(reason) {
        reason if reason.is_empty() => error,
        reason => error.detail(format!("The client's reason: {reason}.")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_a_choice_without_a_layer_is_accepted() {
        for (choice, authzid) in
            [(&b"\x01\0\0\0"[..], ""), (b"\x01\0\0\0ann", "ann"), (b"\x01\xff\xff\xffann\0", "ann")]
        {
            assert_eq!(authorization_id(choice).unwrap(), authzid);
        }
        let text = aborted(b"No common protection layer between client and server\n").text();
        assert!(
            text.contains("No common protection layer between client and server.\nHint: Leave out saslQop"),
            "{text}"
        );
        assert!(aborted(b"").detail.is_none());
        for choice in
            [&b""[..], b"\x01\0\0", b"\0\0\0\0", b"\x02\0\0\0", b"\x04\0\0\0ann", b"\x03\0\0\0", b"\x01\0\0\0\xff"]
        {
            assert!(matches!(authorization_id(choice), Err(Failed::Refused(_))), "{choice:?}");
        }
    }
}
