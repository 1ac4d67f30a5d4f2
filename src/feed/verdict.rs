//! What a fetch proves. Pure: decides on values whether its events may be applied.

use std::time::Duration;

use crate::cache::clock::Moment;
use crate::error::{Error, Result};
use crate::sink::Reset;
use crate::snapshot::{Life, Snapshot};
use crate::store::event::Proof;

/// After this long without an acknowledged heartbeat the log may have dropped our row.
const DEAD_AFTER: Duration = Duration::from_secs(60);

/// Heartbeats of this process.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Beats {
    /// Last one sent; 0 = none.
    pub(crate) sent: i64,
    /// Last one that the server acknowledged, and when; `None` = none in this epoch.
    pub(crate) acknowledged: Option<(i64, Moment)>,
}

/// What to do with a fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Apply it; what the memory belongs to is this.
    Good(Life),
    /// No epoch stands, or it belongs to another log: have one written and fetch again.
    Establish,
    /// Our heartbeat row has gone after a long absence: send one and fetch again.
    Register,
    /// All that is held is void.
    Reset(Reset),
}

/// Judges a fetch against what the feed knows. `base`: the cursor's, when there is one.
pub(crate) fn judge(
    proof: &Proof,
    known: Option<&Life>,
    base: Option<&Snapshot>,
    beats: &Beats,
    now: Moment,
) -> Verdict {
    let (Some(epoch), true) = (proof.epoch, proof.same_log) else {
        return Verdict::Establish;
    };
    let found = Life {
        epoch,
        identity: proof.identity,
    };
    match known {
        Some(known) if known.identity != found.identity => return Verdict::Reset(Reset::Identity),
        Some(known) if known.epoch != found.epoch => return Verdict::Reset(Reset::Epoch),
        _ => {}
    }
    if let Some((acknowledged, at)) = beats.acknowledged {
        match proof.heartbeat {
            Some(sequence) if (acknowledged..=beats.sent).contains(&sequence) => {}
            None if at.age_at(now).is_none_or(|age| age > DEAD_AFTER) => return Verdict::Register,
            _ => return Verdict::Reset(Reset::Heartbeat),
        }
    }
    match base {
        Some(base) if !base.covers(&proof.pruned) => Verdict::Reset(Reset::Pruned),
        _ => Verdict::Good(found),
    }
}

/// Where unlogged tables outlive a crash only the loss of the session tells of one, and a pooler hides that loss.
pub(crate) fn must_be_direct(keeps_unlogged: bool, is_lent: bool) -> Result<()> {
    if keeps_unlogged && is_lent {
        return Err(Error::refused(
            "this server keeps unlogged tables through a crash (Aurora), and a pooler would hide the crash: set \
             listen_url to a direct address",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use uuid::Uuid;

    use super::*;
    use crate::cache::clock::Clock;
    use crate::snapshot::Identity;

    const IDENTITY: Identity = Identity {
        system_identifier: 1,
        database: 2,
        event_table: 3,
    };

    fn proof() -> Proof {
        Proof {
            snapshot: "10:20:12".parse().unwrap(),
            pruned: "5:5:".parse().unwrap(),
            epoch: Some(Uuid::from_u128(7)),
            identity: IDENTITY,
            same_log: true,
            heartbeat: Some(3),
            clock: SystemTime::UNIX_EPOCH,
            lsn: 1.into(),
        }
    }

    fn known() -> Life {
        Life {
            epoch: Uuid::from_u128(7),
            identity: IDENTITY,
        }
    }

    fn judged(change: impl FnOnce(&mut Proof), beats: Beats) -> Verdict {
        let mut proof = proof();
        change(&mut proof);
        let base: Snapshot = "8:9:".parse().unwrap();
        judge(&proof, Some(&known()), Some(&base), &beats, Moment::now())
    }

    fn beats() -> Beats {
        Beats {
            sent: 4,
            acknowledged: Some((3, Moment::now())),
        }
    }

    #[test]
    fn each_broken_proof_has_its_verdict() {
        assert_eq!(judged(|_| (), beats()), Verdict::Good(known()));
        assert_eq!(
            judged(|proof| proof.heartbeat = Some(4), beats()),
            Verdict::Good(known())
        );
        assert_eq!(judged(|proof| proof.epoch = None, beats()), Verdict::Establish);
        assert_eq!(
            judged(|proof| proof.same_log = false, beats()),
            Verdict::Establish
        );
        assert_eq!(
            judged(|proof| proof.epoch = Some(Uuid::from_u128(8)), beats()),
            Verdict::Reset(Reset::Epoch)
        );
        assert_eq!(
            judged(|proof| proof.identity.database = 9, beats()),
            Verdict::Reset(Reset::Identity)
        );
        assert_eq!(
            judged(|proof| proof.heartbeat = Some(2), beats()),
            Verdict::Reset(Reset::Heartbeat)
        );
        assert_eq!(
            judged(|proof| proof.heartbeat = None, beats()),
            Verdict::Reset(Reset::Heartbeat)
        );
        assert_eq!(
            judged(|proof| proof.pruned = "9:10:".parse().unwrap(), beats()),
            Verdict::Reset(Reset::Pruned)
        );
    }

    #[test]
    fn who_was_away_for_over_60_s_registers_anew_and_is_reset_once_if_he_missed_something() {
        let (clock, hands) = Clock::manual();
        let beats = Beats {
            sent: 4,
            acknowledged: Some((3, clock.now())),
        };
        let mut proof = proof();
        proof.heartbeat = None;
        let base: Snapshot = "8:9:".parse().unwrap();
        let judged =
            |proof: &Proof, beats: &Beats, now| judge(proof, Some(&known()), Some(&base), beats, now);
        hands.advance(DEAD_AFTER);
        assert_eq!(
            judged(&proof, &beats, clock.now()),
            Verdict::Reset(Reset::Heartbeat)
        );
        hands.advance(Duration::from_secs(1));
        assert_eq!(judged(&proof, &beats, clock.now()), Verdict::Register);
        // Registered: what else is wrong is told by the next fetch.
        proof.heartbeat = Some(4);
        assert_eq!(judged(&proof, &beats, clock.now()), Verdict::Good(known()));
        proof.pruned = "9:10:".parse().unwrap();
        assert_eq!(judged(&proof, &beats, clock.now()), Verdict::Reset(Reset::Pruned));
    }

    #[test]
    fn where_the_epoch_proves_nothing_a_pooler_is_refused() {
        assert!(must_be_direct(true, true).unwrap_err().is_refused());
        for (keeps_unlogged, is_lent) in [(true, false), (false, true), (false, false)] {
            assert!(must_be_direct(keeps_unlogged, is_lent).is_ok());
        }
    }

    #[test]
    fn before_the_first_heartbeat_nothing_is_expected_of_it() {
        assert_eq!(
            judged(|proof| proof.heartbeat = None, Beats::default()),
            Verdict::Good(known())
        );
        assert_eq!(
            judged(|proof| proof.heartbeat = Some(99), Beats::default()),
            Verdict::Good(known())
        );
    }
}
