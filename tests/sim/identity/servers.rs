//! Turns the hosts at which a cluster is found into who answers there: each fails apart from the others, or one after the other,
//! and gets the next CA when it is its turn; some move, one is another cluster's, and of one only the cluster itself knows.

use nodepulse::agent::Input;
use nodepulse::config::kubeconfig::{Server, parse_server};

use super::cluster::Authority;
use super::network::Letter;
use super::plan::{Plan, Rotation};
use super::world::{Event, HOUR_US, SECOND_US, World};
use crate::model::http::Request;

/// A host where an API server is to be found, and a supervisor if the cluster has one.
pub struct Host {
    name: String,
    down_until_us: u64,
    /// While it is down, whoever asks hears so at once.
    refuses: bool,
    /// By whom it is certified.
    pub certified: Authority,
    /// It is none of this cluster.
    pub is_stranger: bool,
}

pub struct Servers {
    hosts: Vec<Host>,
    /// In the settings of the boards.
    pub named: Vec<Server>,
    /// Port that the settings name.
    port: u16,
    moved: u64,
}

/// In cluster-info.
const INNER: &str = "10.0.0.1";
pub const PORT_OF_API: u16 = 6443;
/// One server gets the next CA so long after the one before.
const LAG_US: u64 = HOUR_US / 2;

impl Servers {
    pub fn new(plan: &Plan, certified: &Authority, stranger: &Authority) -> Servers {
        let port = if plan.program == "rke2" { 9345 } else { PORT_OF_API };
        let host = |name: &str, is_stranger: bool| Host {
            name: name.to_owned(),
            down_until_us: 0,
            refuses: false,
            certified: if is_stranger { stranger.clone() } else { certified.clone() },
            is_stranger,
        };
        let own = ["one", "two", "three"].into_iter().take(plan.servers).map(|name| host(name, false));
        let mut hosts: Vec<Host> = plan.has_stranger.then(|| host("foreign", true)).into_iter().chain(own).collect();
        let named = hosts.iter().filter_map(|host| server(&host.name, port)).collect();
        hosts.extend(plan.has_inner.then(|| host(INNER, false)));
        Servers { hosts, named, port, moved: 0 }
    }

    /// What a supervisor calls the API servers.
    pub fn listed(&self) -> Vec<String> {
        let own = self.hosts.iter().filter(|host| !host.is_stranger);
        own.map(|host| format!("{}:{PORT_OF_API}", host.name)).collect()
    }

    fn found(&self, server: &Server) -> Option<&Host> {
        self.hosts.iter().find(|host| host.name == server.host && [PORT_OF_API, self.port].contains(&server.port))
    }
}

fn server(host: &str, port: u16) -> Option<Server> {
    parse_server(&format!("https://{host}:{port}")).ok()
}

impl World {
    /// Who answers there, or what becomes of the connection: nothing at all, or a word.
    pub fn meets(&self, letter: &Letter) -> Result<&Host, Option<&'static str>> {
        let Some(host) = self.servers.found(&letter.to) else { return Err(None) };
        match host.down_until_us > self.now_us {
            true => Err(host.refuses.then_some("connect-refused")),
            false => Ok(host),
        }
    }

    /// Whether the supervisor's port is asked for what is the API's, or the API's for what is not.
    pub fn is_misdirected(&self, letter: &Letter, request: &Request) -> bool {
        let Some(supervisor) = &self.cluster.supervisor else { return super::supervisor::is_of_supervisor(request) };
        let is_own = super::supervisor::is_of_supervisor(request);
        supervisor.port != PORT_OF_API && is_own != (letter.to.port == supervisor.port)
    }

    /// Something happens to the servers, and again later.
    pub fn trouble_servers(&mut self) {
        if self.peace_us.is_some() {
            return;
        }
        let again_us = self.random.between(self.plan.life_us / 20, self.plan.life_us / 2);
        self.schedule(again_us, Event::Servers);
        let longest_us = if self.random.per_mille(100) { self.plan.longest_us() } else { self.plan.life_us / 6 };
        match self.random.below(4) {
            0 | 1 => {
                let place = self.random.below(self.servers.hosts.len() as u64) as usize;
                self.fails(place, 0, longest_us);
            }
            2 => {
                let span_us = self.random.between(SECOND_US, longest_us);
                (0..self.servers.hosts.len()).for_each(|place| self.fails(place, place as u64 * span_us, span_us));
            }
            _ => self.moves(),
        }
    }

    fn fails(&mut self, place: usize, after_us: u64, longest_us: u64) {
        let span_us = self.random.between(SECOND_US, longest_us.max(2 * SECOND_US));
        self.schedule(after_us, Event::ServerFails { place, span_us });
    }

    pub fn server_fails(&mut self, place: usize, span_us: u64) {
        let refuses = self.random.per_mille(500);
        let now_us = self.now_us;
        if let Some(host) = self.servers.hosts.get_mut(place).filter(|_| self.peace_us.is_none()) {
            (host.down_until_us, host.refuses) = (now_us + span_us, refuses);
            let name = host.name.clone();
            self.say(|| format!("server {name} is down for {} s", span_us / SECOND_US));
        }
    }

    /// One of the cluster's has another address from now on, which the settings say to all boards.
    fn moves(&mut self) {
        let place = self.random.below(self.servers.hosts.len() as u64) as usize;
        let Servers { hosts, named, port, moved } = &mut self.servers;
        let Some(host) = hosts.get_mut(place).filter(|host| !host.is_stranger && host.name != INNER) else { return };
        *moved += 1;
        let before = std::mem::replace(&mut host.name, format!("moved-{moved}"));
        let (line, port) = (format!("server {before} is {} from now on", host.name), *port);
        if let Some((known, now)) = named.iter_mut().find(|known| known.host == before).zip(server(&host.name, port)) {
            *known = now;
        }
        self.say(|| line);
        for board in 0..self.machines.len() {
            self.read_settings_again(board);
        }
    }

    /// SIGHUP. A board that is off, or whose person is away, finds them when it starts.
    fn read_settings_again(&mut self, board: usize) {
        if self.machines[board].agent.is_none() {
            return;
        }
        self.use_settings(board);
        let settings = Box::new(self.machines[board].settings.clone());
        self.judge.reloaded(board);
        self.answer(board, 1_000, Input::Reloaded(settings));
    }

    /// The next CA is that of one server after the other.
    pub fn switch_servers(&mut self) {
        let lag_us = if self.plan.rotation == Rotation::None { 0 } else { LAG_US };
        for place in 0..self.servers.hosts.len() {
            let delay_us = if place == 0 { 0 } else { self.random.below(lag_us * place as u64) };
            self.schedule(delay_us, Event::Switch(place));
        }
    }

    pub fn switch_server(&mut self, place: usize) {
        let next = self.cluster.serves.clone();
        if let Some(host) = self.servers.hosts.get_mut(place).filter(|host| !host.is_stranger) {
            host.certified = next;
        }
    }

    /// All that are the cluster's are there.
    pub fn end_trouble_of_servers(&mut self) {
        self.servers.hosts.iter_mut().for_each(|host| host.down_until_us = 0);
        (0..self.servers.hosts.len()).for_each(|place| self.switch_server(place));
    }
}
