//! Turns chance into what befalls a board, and into what people do to the cluster.

use super::cluster::{Approver, HOUR_US as HOUR_WALL_US, Signer};
use super::network::INTRUDERS;
use super::plan::Rotation;
use super::world::{Event, HOUR_US, SECOND_US, World};

const APPROVERS: [Approver; 6] =
    [Approver::Prompt, Approver::Prompt, Approver::Prompt, Approver::Slow, Approver::Absent, Approver::Denies];
const SIGNERS: [Signer; 8] = [
    Signer::Prompt,
    Signer::Prompt,
    Signer::Prompt,
    Signer::Slow,
    Signer::Fails,
    Signer::OfAnotherKey,
    Signer::OfAnotherName,
    Signer::OfAnotherCa,
];

impl World {
    /// Something happens to a board, and again later.
    pub fn befall(&mut self, board: usize) {
        if self.peace_us.is_some() {
            return;
        }
        let again_us = self.random.between(self.plan.life_us / 30, self.plan.life_us / 2);
        self.schedule(again_us, Event::Befall(board));
        match self.random.below(8) {
            0 | 1 => self.lose_link(board),
            2 => {
                self.say(|| format!("the process of board {board} is killed"));
                self.stop(board);
                let delay_us = self.random.between(SECOND_US / 4, 20 * SECOND_US);
                self.schedule(delay_us, Event::Start(board));
            }
            3 if self.machines[board].is_on => self.cut_power(board),
            4 | 5 if self.plan.intrudes => {
                let intruder = self.random.pick(&INTRUDERS);
                let span_us = self.random.between(60 * SECOND_US, HOUR_US / 2);
                self.say(|| format!("{intruder:?} stands between board {board} and the cluster"));
                self.machines[board].intruder = Some((self.now_us + span_us, intruder));
            }
            // What a disk does not take of another CA is gone with the power.
            6 if self.plan.rotation != Rotation::Overlapping => {
                let refuses = !self.machines[board].folder.refuses;
                self.say(|| format!("the disk of board {board} takes {} writes", if refuses { "no" } else { "all" }));
                self.machines[board].folder.refuses = refuses;
            }
            _ => {}
        }
    }

    fn lose_link(&mut self, board: usize) {
        let longest_us = if self.random.per_mille(250) { self.plan.longest_us() } else { self.plan.life_us / 10 };
        let span_us = self.random.between(2 * SECOND_US, longest_us);
        self.say(|| format!("board {board} loses its link for {} s", span_us / SECOND_US));
        self.machines[board].link_down_until_us = self.now_us + span_us;
        self.schedule(span_us + 1, Event::LinkUp { board });
    }

    /// Somebody does something to the cluster.
    pub fn people(&mut self) {
        if self.peace_us.is_some() {
            return;
        }
        let again_us = self.random.between(self.plan.life_us / 30, self.plan.life_us / 3);
        self.schedule(again_us, Event::People);
        let wall_us = self.wall_us();
        match self.random.below(10) {
            0 | 1 => {
                let approver = self.random.pick(&APPROVERS);
                self.say(|| format!("the approver: {approver:?}"));
                self.cluster.approver = approver;
            }
            2 | 3 => {
                let signer = self.random.pick(&SIGNERS);
                self.say(|| format!("the signer: {signer:?}"));
                self.cluster.signer = signer;
            }
            4 | 5 => {
                let hours = self.random.pick(&[0, 0, 1, 24, 24]);
                self.say(|| format!("the token is there for {hours} h"));
                self.cluster.token_until_us = (hours > 0).then_some(wall_us + hours * HOUR_WALL_US);
            }
            // What a disk does not take of another CA is gone with the power.
            6 if self.plan.rotation != Rotation::Overlapping => {
                let span_us = self.random.between(SECOND_US, HOUR_US / 4);
                self.say(|| format!("the API server is in trouble for {} s", span_us / SECOND_US));
                self.api_down_until_us = self.now_us + span_us;
            }
            7 => {
                let is_taken = self.random.per_mille(300);
                self.say(|| format!("a request for a certificate is taken away, and replaced: {is_taken}"));
                self.cluster.disturb(is_taken, wall_us);
            }
            8 => {
                let node = self.machines[0].node.clone();
                self.say(|| format!("Node {node} is deleted"));
                self.cluster.api.delete_node(&node);
                self.cluster.supervisor.iter_mut().for_each(|known| drop(known.node_passwords.remove(&node)));
            }
            _ if self.plan.revokes => {
                let node = self.machines[0].node.clone();
                self.say(|| format!("{node} is revoked"));
                self.cluster.revoked.insert(node);
            }
            _ => self.cluster.is_anonymous_refused = self.random.per_mille(300),
        }
    }

    /// From now on nothing is in the way of any board.
    pub fn make_peace(&mut self) {
        self.say(|| "peace".to_owned());
        self.peace_us = Some(self.now_us);
        self.cluster.make_peace();
        self.end_trouble_of_servers();
        self.api_down_until_us = 0;
        for board in 0..self.machines.len() {
            let machine = &mut self.machines[board];
            machine.intruder = None;
            machine.folder.refuses = false;
            if machine.link_down_until_us > self.now_us {
                machine.link_down_until_us = 0;
                self.schedule(1, Event::LinkUp { board });
            }
            self.power_on(board);
        }
        self.schedule(60 * SECOND_US, Event::Judge);
    }
}
