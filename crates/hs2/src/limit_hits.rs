//! Counters of the limits that clients reach: how often each has made a server reject something since its process began.
//!
//! A counter has no address and no user, so clients cannot make the counters grow. What is rejected is counted once, whether the
//! client receives a reason or its connection is closed.

use std::sync::atomic::{AtomicU64, Ordering};

/// A limit that clients can reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Limit {
    Connections,
    ConnectionsPerUser,
    ConnectionsPerAddress,
    Unauthenticated,
    UnauthenticatedPerAddress,
    ConnectRate,
    PasswordHashes,
    LoginsPerUser,
    RequestBytes,
    RequestMemory,
    RequestMemoryPerUser,
    Sessions,
    SessionsPerUser,
    SessionsPerTenant,
    HttpSessionsPerAddress,
    SessionAge,
    StatementsPerUser,
    StatementsPerTenant,
    SessionOperations,
    SessionSettingBytes,
    SessionStatementBytes,
    HeldBytes,
    ApiCalls,
    ApiCallsPerUser,
}

impl Limit {
    /// All limits, each at the position of its counter.
    pub const ALL: [Self; 24] = [
        Self::Connections,
        Self::ConnectionsPerUser,
        Self::ConnectionsPerAddress,
        Self::Unauthenticated,
        Self::UnauthenticatedPerAddress,
        Self::ConnectRate,
        Self::PasswordHashes,
        Self::LoginsPerUser,
        Self::RequestBytes,
        Self::RequestMemory,
        Self::RequestMemoryPerUser,
        Self::Sessions,
        Self::SessionsPerUser,
        Self::SessionsPerTenant,
        Self::HttpSessionsPerAddress,
        Self::SessionAge,
        Self::StatementsPerUser,
        Self::StatementsPerTenant,
        Self::SessionOperations,
        Self::SessionSettingBytes,
        Self::SessionStatementBytes,
        Self::HeldBytes,
        Self::ApiCalls,
        Self::ApiCallsPerUser,
    ];

    /// The name for operators: the key of `[proxy]` in the configuration, if there is one.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connections => "max_connections",
            Self::ConnectionsPerUser => "max_connections_per_user",
            Self::ConnectionsPerAddress => "max_connections_per_address",
            Self::Unauthenticated => "max_unauthenticated",
            Self::UnauthenticatedPerAddress => "max_unauthenticated_per_address",
            Self::ConnectRate => "connect_rate",
            Self::PasswordHashes => "password_hashes",
            Self::LoginsPerUser => "logins_per_user",
            Self::RequestBytes => "request_bytes",
            Self::RequestMemory => "request_memory",
            Self::RequestMemoryPerUser => "request_memory_per_user",
            Self::Sessions => "sessions",
            Self::SessionsPerUser => "max_sessions_per_user",
            Self::SessionsPerTenant => "max_sessions_per_tenant",
            Self::HttpSessionsPerAddress => "http_sessions_per_address",
            Self::SessionAge => "session_age",
            Self::StatementsPerUser => "max_statements_per_user",
            Self::StatementsPerTenant => "max_statements_per_tenant",
            Self::SessionOperations => "session_operations",
            Self::SessionSettingBytes => "max_session_setting_bytes",
            Self::SessionStatementBytes => "max_session_statement_bytes",
            Self::HeldBytes => "max_held_bytes",
            Self::ApiCalls => "api_calls",
            Self::ApiCallsPerUser => "api_calls_per_user",
        }
    }
}

/// A counter for each limit.
#[derive(Debug, Default)]
pub struct LimitHits([Counter; Limit::ALL.len()]);

#[derive(Debug, Default)]
struct Counter {
    all: AtomicU64,
    reported: AtomicU64,
}

/// What was rejected because of one limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hits {
    pub limit: Limit,
    /// Since the last report.
    pub new: u64,
    /// Since the process began.
    pub all: u64,
}

impl LimitHits {
    /// Counts something that is rejected because of this limit.
    pub fn hit(&self, limit: Limit) {
        self.0[limit as usize].all.fetch_add(1, Ordering::Relaxed);
    }

    /// How often this limit was reached.
    pub fn count(&self, limit: Limit) -> u64 {
        self.0[limit as usize].all.load(Ordering::Relaxed)
    }

    /// The limits that were reached since the last call.
    pub fn take(&self) -> Vec<Hits> {
        let new_of = |limit: &Limit| {
            let counter = &self.0[*limit as usize];
            let all = counter.all.load(Ordering::Relaxed);
            let new = all - counter.reported.swap(all, Ordering::Relaxed);
            (new > 0).then_some(Hits { limit: *limit, new, all })
        };
        Limit::ALL.iter().filter_map(new_of).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_limit_has_a_counter_and_a_name_of_its_own() {
        let hits = LimitHits::default();
        for (at, limit) in Limit::ALL.into_iter().enumerate() {
            assert_eq!(limit as usize, at, "{limit:?}");
            assert_eq!(hits.count(limit), 0);
            hits.hit(limit);
            assert_eq!(hits.count(limit), 1);
        }
        assert_eq!(Limit::ALL.map(Limit::name).into_iter().collect::<BTreeSet<_>>().len(), Limit::ALL.len());
    }

    #[test]
    fn every_name_is_documented() {
        let page = include_str!("../../../docs/gateway.md");
        let (_, page) = page.split_once("\n## Limits\n").unwrap_or_default();
        for limit in Limit::ALL {
            let name = limit.name();
            let is_named = page.contains(&format!("`{name}`")) || page.contains(&format!("`proxy.{name}`"));
            assert!(is_named, "docs/gateway.md does not have {name}");
        }
    }

    #[test]
    fn a_report_has_what_came_since_the_last_one() {
        let hits = LimitHits::default();
        assert_eq!(hits.take(), []);
        hits.hit(Limit::Sessions);
        hits.hit(Limit::Connections);
        hits.hit(Limit::Sessions);
        let expected =
            [Hits { limit: Limit::Connections, new: 1, all: 1 }, Hits { limit: Limit::Sessions, new: 2, all: 2 }];
        assert_eq!(hits.take(), expected);
        hits.hit(Limit::Sessions);
        assert_eq!(hits.take(), [Hits { limit: Limit::Sessions, new: 1, all: 3 }]);
        assert_eq!(hits.take(), []);
    }
}
