//! The SASL mechanism `ENGINEHOUSE-ED25519`: a component of an installation proves that it has the key of its role.
//!
//! The client sends START with the mechanism's name. The server sends 32 random bytes (`OK`). The client replies with its
//! proof (`COMPLETE`): the generation of its key (u32), a signature of 64 bytes, its role, a zero byte, and the user on
//! whose behalf it connects. The signature covers the server's bytes and name, so a proof is valid for one connection
//! to one server: it cannot be replayed, and a server that receives it cannot pass it on to another one. A verifier has
//! no key that signs. No clock is compared.

use std::net::SocketAddr;

use crate::auth::{Authenticator, Principal};
use crate::error::WireError;
use crate::sasl::{self, COMPLETE, Failed, OK, START, head, unfit};
use crate::service_proof::{CHALLENGE_BYTES, SIGNATURE_BYTES, ServiceLogin, ServiceProof, message};
use crate::wire::Wire;

pub(crate) const NAME: &str = "ENGINEHOUSE-ED25519";

/// The server's side, after START.
pub(crate) async fn verify(
    wire: &mut Wire,
    peer: SocketAddr,
    authenticator: &dyn Authenticator,
) -> Result<Principal, Failed> {
    let challenge: [u8; CHALLENGE_BYTES] = rand::random();
    wire.write(&head(OK, challenge.len()), &challenge).await?;
    let (status, payload) = sasl::read(wire).await?;
    if status != COMPLETE {
        return Err(Failed::GivenUp);
    }
    let proof = parse(challenge, &payload).ok_or_else(|| unfit("the proof of a component is malformed"))?;
    authenticator.authenticate_service(peer, &proof).await.map_err(Failed::Refused)
}

fn parse(challenge: [u8; CHALLENGE_BYTES], payload: &[u8]) -> Option<ServiceProof> {
    let (generation, rest) = payload.split_first_chunk::<4>()?;
    let (signature, rest) = rest.split_first_chunk::<SIGNATURE_BYTES>()?;
    let (role, user) = std::str::from_utf8(rest).ok()?.split_once('\0')?;
    if user.contains('\0') {
        return None;
    }
    Some(ServiceProof {
        role: role.to_owned(),
        generation: u32::from_be_bytes(*generation),
        user: user.to_owned(),
        signature: *signature,
        challenge,
    })
}

/// The client's side; the server's response to the proof is not read.
pub(crate) async fn prove(wire: &mut Wire, login: &ServiceLogin) -> Result<Result<(), String>, WireError> {
    wire.write(&head(START, NAME.len()), NAME.as_bytes()).await?;
    let (status, payload) = sasl::read(wire).await?;
    if status != OK {
        return Ok(Err(String::from_utf8_lossy(&payload).into_owned()));
    }
    let Ok(challenge) = <[u8; CHALLENGE_BYTES]>::try_from(payload) else {
        return Ok(Err("the server's challenge has another length".to_owned()));
    };
    let ServiceLogin { role, generation, audience, user, sign } = login;
    let signature = sign(&message(&challenge, audience, role, *generation, user));
    let mut proof = Vec::with_capacity(4 + SIGNATURE_BYTES + role.len() + 1 + user.len());
    proof.extend_from_slice(&generation.to_be_bytes());
    proof.extend_from_slice(&signature);
    proof.extend_from_slice(role.as_bytes());
    proof.push(0);
    proof.extend_from_slice(user.as_bytes());
    wire.write(&head(COMPLETE, proof.len()), &proof).await?;
    Ok(Ok(()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_malformed_proof_is_not_read() {
        let challenge = [1; CHALLENGE_BYTES];
        let mut payload = vec![0, 0, 0, 7];
        payload.extend_from_slice(&[9; SIGNATURE_BYTES]);
        payload.extend_from_slice(b"proxy\0ann");
        let proof = parse(challenge, &payload).unwrap();
        assert_eq!((proof.role.as_str(), proof.generation, proof.user.as_str()), ("proxy", 7, "ann"));
        for length in 0..payload.len() - 3 {
            assert_eq!(parse(challenge, &payload[..length]), None, "{length} bytes");
        }
        for more in [&b"\0"[..], b"\xff"] {
            assert_eq!(parse(challenge, &[&payload, more].concat()), None);
        }
    }
}
