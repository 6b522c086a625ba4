//! Programs that are no engines and reserve in the same pools, by the client crate over HTTP.

use reservation_client::{
    Claim, Client, ClientOptions, Error, LedgerError, RequestKey, ReservationRequest, ReservationStatus, Resource,
};

use crate::installation::Installation;

/// A program of a user.
pub struct Program {
    client: Client,
    tenant: &'static str,
}

impl Program {
    pub fn of(installation: &Installation, user: &str, tenant: &'static str) -> Self {
        let proxies = vec![installation.proxy.addr().to_string()];
        Self { client: Client::new(ClientOptions::new(proxies, user, "x")), tenant }
    }

    async fn try_reserve(&self, cpu_m: i64) -> Result<ReservationStatus, Error> {
        let request = ReservationRequest::on_pool(self.tenant, "rp_1", Resource::Cpu { cpu_m }, "i-1");
        self.client.reserve(&request, &RequestKey::random()).await
    }

    pub async fn reserve(&self, cpu_m: i64) -> Claim {
        Claim::new(&self.try_reserve(cpu_m).await.unwrap(), "i-1")
    }

    pub async fn release(&self, claim: &Claim) {
        self.client.release(claim).await.unwrap();
    }

    /// The SQLSTATE of a refusal, and what the ledger says about it.
    pub async fn is_refused(&self, cpu_m: i64) -> (String, LedgerError) {
        let Err(Error::Refused(problem)) = self.try_reserve(cpu_m).await else { panic!("it is granted") };
        assert_eq!(problem.status, 409, "{problem}");
        (problem.sqlstate, problem.ledger.unwrap())
    }
}
