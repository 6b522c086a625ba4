//! The settings of the method `kerberos`: for which services, and of which realms, tickets are accepted.

use super::principal::Principal;

/// Which tickets are accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KerberosSettings {
    /// The first part of the service's name, such as `hive` in `hive/proxy.example@EXAMPLE`. A keytab may hold keys of other services.
    pub services: Vec<String>,
    /// The realms of clients; if there is none, only the realm of the service. Two users of one name in two of them are one user.
    pub realms: Vec<String>,
}

impl KerberosSettings {
    /// Why a ticket of `client` for `service` is not accepted; `None` if it is.
    pub(super) fn refuses(&self, client: &Principal, service: &Principal) -> Option<String> {
        let named = service.name.split('/').next().unwrap_or_default();
        if !self.services.iter().any(|accepted| accepted == named) {
            return Some(format!("ticket for the service {service}"));
        }
        let is_accepted = match self.realms.as_slice() {
            [] => client.realm == service.realm,
            realms => realms.contains(&client.realm),
        };
        (!is_accepted).then(|| format!("ticket of {client}, of another realm"))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_ticket_is_for_an_accepted_service_and_from_an_accepted_realm() {
        let texts = |of: &[&str]| of.iter().map(|text| (*text).to_owned()).collect();
        for (realms, client, service, accepted) in [
            (&[][..], "ann@A", "hive/host@A", true),
            (&[], "ann@A", "HTTP/host@A", true),
            (&[], "ann@A", "host/host@A", false),
            (&[], "ann@A", "Hive/host@A", false),
            (&[], "ann@A", "hive@A", true),
            (&[], "ann@B", "hive/host@A", false),
            (&[], "ann@a", "hive/host@A", false),
            (&["A", "B"], "ann@B", "hive/host@A", true),
            (&["B"], "ann@A", "hive/host@A", false),
        ] {
            let settings = KerberosSettings { services: texts(&["hive", "HTTP"]), realms: texts(realms) };
            let of = |text: &str| Principal::parse(text.as_bytes()).unwrap();
            assert_eq!(
                settings.refuses(&of(client), &of(service)).is_none(),
                accepted,
                "{client} {service} {realms:?}"
            );
        }
    }
}
