//! Turns the writes that the server took of two boards into "one gave way" or a sentence saying what is wrong (D10).

use super::pair::{CALM_US, Differ, NODE, Pair, SECOND_US, TROUBLE_US, Written};

/// Three renewals at their latest, as each second one tests who holds the Lease (of a Node that is watched the one after each
/// write), and its answer is read with the next; and their travels.
const THREE_RENEWALS_US: u64 = 33 * SECOND_US;
/// Writes of two boards that are further apart are no quarrel: one of them has stopped.
const APART_US: u64 = 30 * SECOND_US;
/// A third of the Lease, and a little more, less what a renewal may come early.
const QUIET_US: u64 = 10 * SECOND_US;
/// From when a link is back until the first write gets through: a request may have gone into the dead link just before, with all
/// the patience there is, then there is a pause of up to a run's period, and the Node is read first (pairs 7131, 6858).
const FIRST_WRITE_US: u64 = 22 * SECOND_US;
const LAST_MINUTE_US: u64 = 60 * SECOND_US;

impl Pair {
    /// What does not hold of them.
    pub fn judge(&self) -> Result<(), String> {
        self.judge_quarrels()?;
        let from_us = TROUBLE_US + CALM_US - LAST_MINUTE_US;
        let last: Vec<usize> = self.writes.iter().filter(|one| one.at_us > from_us).map(|one| one.board).collect();
        let Some(holder) = last.first() else { return Err("in peace nobody writes".to_owned()) };
        if last.iter().any(|board| board != holder) {
            return Err("in peace two boards write".to_owned());
        }
        let node = self.server.node(NODE).ok_or("there is no Node")?;
        let serial = self.machines[*holder].board.serial.clone();
        let named = node["metadata"]["annotations"]["nodepulse.dev/board-serial"].as_str().map(str::to_owned);
        if named != serial {
            return Err(format!("board {holder} writes and the Node names {named:?}"));
        }
        let gave_way = self.machines[1 - holder].said.last();
        if gave_way.is_none_or(|(_, word)| *word != "name-taken") {
            return Err(format!("board {} does not say why it writes nothing: {gave_way:?}", 1 - holder));
        }
        Ok(())
    }

    /// Writes that change hands and back again, from the first return of a board on.
    fn judge_quarrels(&self) -> Result<(), String> {
        let mut quarrel: Option<(u64, u64)> = None;
        for two in self.writes.windows(2) {
            let [before, now] = two else { continue };
            if before.board == now.board {
                continue;
            }
            // Of two that both write, the later began when it first wrote after its return.
            let last_return_us = self.returns_us.iter().filter(|at_us| **at_us <= now.at_us).max().copied();
            let has_ended =
                |(at_us, board): &(u64, usize)| *board == before.board && (before.at_us..=now.at_us).contains(at_us);
            // Who takes over from one that is gone quarrels with nobody, until that one writes again.
            if self.ends.iter().any(has_ended) {
                quarrel = None;
                continue;
            }
            let goes_on = quarrel.filter(|(_, last_us)| now.at_us - last_us < APART_US);
            let goes_on = goes_on.filter(|(began_us, _)| last_return_us.is_none_or(|returned| *began_us >= returned));
            let began_us = goes_on.map_or(now.at_us, |(began_us, _)| began_us);
            quarrel = Some((began_us, now.at_us));
            // Until the last write of the one that gives way (pair 125).
            if before.at_us.saturating_sub(began_us) > THREE_RENEWALS_US && goes_on.is_some() {
                let span_s = (before.at_us - began_us) / SECOND_US;
                return Err(format!("two boards write one Node for {span_s} s: {before}, {now}"));
            }
        }
        if matches!(self.differ, Differ::Nothing | Differ::Nameless) { Ok(()) } else { self.judge_starts() }
    }

    /// A process on a board that can be told from the other writes nothing before that one has been silent for a while.
    fn judge_starts(&self) -> Result<(), String> {
        for (place, first) in self.writes.iter().enumerate() {
            let is_first = |one: &Written| (one.board, one.life) != (first.board, first.life);
            let (Some(before), true) = (self.writes[..place].last(), self.writes[..place].iter().all(is_first)) else {
                continue;
            };
            let returned = self
                .returns_us
                .iter()
                .any(|at_us| (before.at_us.saturating_sub(FIRST_WRITE_US)..=first.at_us).contains(at_us));
            if before.board != first.board && first.at_us - before.at_us < QUIET_US && !returned {
                return Err(format!("two boards write one Node: {first}, so soon after {before}"));
            }
        }
        Ok(())
    }
}
