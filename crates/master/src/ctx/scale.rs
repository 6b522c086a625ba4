//! Slots that follow demand: the agents of idle engines are asked first, then one transaction adds and removes slots.
//!
//! An engine whose agent declines, or doesn't answer, keeps its slot. A consent ends only by time, so a slot is removed by the
//! deadline of the effect or not at all. The links of one stage share a transaction.

use std::collections::BTreeMap;

use agent_api::AgentApi as _;
use futures::stream::{self, StreamExt};
use model::millis;
use model::scaling::{LinkScale, LinkScaled, MAX_SCALED_SLOTS, ScaleRequest, SlotAddition};
use model::slot::Link;
use planner::{Release, Scaling};

use super::live::LiveCtx;
use super::{Applied, Expected, Failure};

/// The agents of one link that are asked at the same time.
const ASKED_AT_ONCE: usize = 64;

impl LiveCtx {
    pub(super) async fn scale(&self, scaling: &Scaling, expected: &Expected<'_>) -> Result<Applied, Failure> {
        let mut slots = scaling.slots.clone();
        // Collected first: a future of a closure that borrows its argument is not `Send`.
        let asked: Vec<_> = scaling.release.iter().map(|release| self.agrees(release, expected)).collect();
        let agreed: Vec<bool> = stream::iter(asked).buffered(ASKED_AT_ONCE).collect().await;
        let agreed = scaling.release.iter().zip(agreed).filter(|(_, agrees)| *agrees);
        slots.remove.extend(agreed.map(|(release, _)| release.slot.clone()));
        if slots.add.is_empty() && slots.remove.is_empty() {
            return Ok(Applied::Declined);
        }
        match self.batchers.scaling.write(slots, expected.epoch, |links| self.scale_links(links, expected)).await? {
            LinkScaled::Scaled { added, short } if added.is_empty() && short.is_some() && scaling.is_only_added() => {
                Err(Failure::Moved(short.unwrap_or_default()))
            }
            LinkScaled::Scaled { .. } => Ok(Applied::Done),
            LinkScaled::Refused(reason) => Err(Failure::Moved(reason)),
        }
    }

    async fn agrees(&self, release: &Release, expected: &Expected<'_>) -> bool {
        match self.agrees_to_retire((&release.engine, &release.uid), expected).await {
            Ok(agrees) => agrees,
            Err(failure) => {
                tracing::debug!(engine = %release.engine, %failure, "could not ask an idle engine to retire");
                false
            }
        }
    }

    /// Scales links in calls of at most [`MAX_SCALED_SLOTS`]; a result for each, in the same order. A link that is larger than
    /// a call is scaled by as many of its slots as one call takes.
    async fn scale_links(&self, links: Vec<LinkScale>, expected: &Expected<'_>) -> Vec<Result<LinkScaled, Failure>> {
        let mut results = BTreeMap::new();
        let order: Vec<Link> = links.iter().map(|scale| scale.link.clone()).collect();
        for call in calls(links) {
            let request = ScaleRequest {
                links: call,
                reservation_ttl_ms: millis::from_duration(self.limits().reservation_ttl),
                grace_ms: millis::from_duration(self.limits().grace(None)),
            };
            let (epoch, all) = (expected.epoch, &request);
            model::failpoint!(crate::failpoints::WRITE_SENDING);
            let answer = self.deps.agents.call(|agent| async move { agent.scale(epoch, all).await }).await;
            match answer {
                Ok(scaled) => results.extend(names(&request).zip(scaled.into_iter().map(Ok))),
                Err(failure) => results.extend(names(&request).map(|link| (link, Err(failure.clone())))),
            }
        }
        let lost = || Err(Failure::Unknown("a link has no result".to_owned()));
        order.into_iter().map(|link| results.remove(&link).unwrap_or_else(lost)).collect()
    }
}

fn names(request: &ScaleRequest) -> impl Iterator<Item = Link> + use<> {
    request.links.iter().map(|scale| scale.link.clone()).collect::<Vec<_>>().into_iter()
}

/// The links in calls, each within the limit of a call.
fn calls(links: Vec<LinkScale>) -> Vec<Vec<LinkScale>> {
    let mut calls: Vec<Vec<LinkScale>> = Vec::new();
    let mut room = 0;
    for mut scale in links {
        scale.remove.truncate(MAX_SCALED_SLOTS);
        limit(&mut scale.add, (MAX_SCALED_SLOTS - scale.remove.len()) as u32);
        let size = scale.added() as usize + scale.remove.len();
        if let Some(call) = calls.last_mut().filter(|_| size <= room) {
            call.push(scale);
        } else {
            calls.push(vec![scale]);
            room = MAX_SCALED_SLOTS;
        }
        room -= size;
    }
    calls
}

/// Leaves at most so many slots of the additions, the first ones.
fn limit(additions: &mut Vec<SlotAddition>, most: u32) {
    let mut left = most;
    for addition in &mut *additions {
        addition.count = addition.count.min(left);
        left -= addition.count;
    }
    additions.retain(|addition| addition.count > 0);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use model::name::{PoolName, TenantName, UnitName};
    use model::owner::Owner;
    use model::scaling::SlotsSeen;

    use super::*;

    fn adding(unit: &str, add: u32) -> LinkScale {
        let link = Link {
            tenant: TenantName::new("t_1").unwrap(),
            pool: PoolName::new("rp_1").unwrap(),
            unit: UnitName::new(unit).unwrap(),
        };
        LinkScale { link, seen: SlotsSeen::default(), add: vec![SlotAddition::of_tenant(add)], remove: Vec::new() }
    }

    #[test]
    fn a_call_scales_a_limited_number_of_slots() {
        let most = MAX_SCALED_SLOTS as u32;
        for (links, expected) in [
            (vec![], vec![]),
            (vec![1, 2, 3], vec![vec![1, 2, 3]]),
            (vec![most - 1, 1, 1], vec![vec![most - 1, 1], vec![1]]),
            (vec![most + 5, 1], vec![vec![most], vec![1]]),
            (vec![1, most], vec![vec![1], vec![most]]),
        ] {
            let made = calls(links.iter().enumerate().map(|(at, add)| adding(&format!("uc_{at}"), *add)).collect());
            let sizes: Vec<Vec<u32>> = made.iter().map(|call| call.iter().map(LinkScale::added).collect()).collect();
            assert_eq!(sizes, expected, "{links:?}");
        }
    }
    #[test]
    fn a_call_takes_the_first_owners_of_a_link_that_is_too_large() {
        let of = |count: u32| SlotAddition {
            owner: Some(Owner::User(format!("u{count}"))),
            ..SlotAddition::of_tenant(count)
        };
        for (counts, most, expected) in [
            (vec![1, 2, 3], 6, vec![1, 2, 3]),
            (vec![1, 2, 3], 4, vec![1, 2, 1]),
            (vec![1, 2, 3], 3, vec![1, 2]),
            (vec![1, 2, 3], 0, vec![]),
        ] {
            let mut additions: Vec<SlotAddition> = counts.into_iter().map(of).collect();
            let owners: Vec<_> = additions.iter().map(|addition| addition.owner.clone()).collect();
            limit(&mut additions, most);
            assert_eq!(additions.iter().map(|addition| addition.count).collect::<Vec<_>>(), expected);
            assert!(additions.iter().map(|addition| &addition.owner).eq(&owners[..additions.len()]));
        }
    }
}
