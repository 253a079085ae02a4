//! Turns one attack into its course: peace, the attack, peace again, the attack once more and SIGTERM under it.

use super::attack::{Attack, From, Hold, Renewals, USUAL};
use super::board::Board;
use super::cluster::Result;
use super::cluster::daemon::{Home, wait_until};
use super::cluster::pki::{Authority, Keypair, Validity};
use super::judge::{END, Figures, Times, broken_holds, longest_gap_of};
use super::server::{Server, addresses};
use nix::sys::signal::Signal;
use rustls::ServerConfig;
use std::sync::{Arc, OnceLock};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Registration and the first renewals, when nobody disturbs them.
const START: Duration = Duration::from_secs(25);
/// What was kept is told a little later than it could be: a server that is back is left in peace first.
const TELLING: Duration = Duration::from_secs(60);
/// An attack on renewals alone hits the next one.
const NEXT_HIT: Duration = Duration::from_secs(15);
/// How long peace is measured.
const PEACE: Duration = Duration::from_secs(20);

/// What all cases share: a folder, an authority, two certificates of the server, and the memory of a board in peace.
pub struct Ground {
    home: Home,
    authority: Authority,
    for_years: Arc<ServerConfig>,
    for_a_week: Arc<ServerConfig>,
    peace_kib: OnceLock<Result<u64>>,
}

impl Ground {
    pub fn new() -> Result<Ground> {
        let authority = Authority::new("kubernetes")?;
        let sign = |validity| authority.server(&addresses(), validity).and_then(|pair| config(&pair));
        Ok(Ground {
            home: Home::new()?,
            for_years: sign(Validity::Years)?,
            for_a_week: sign(Validity::Now)?,
            authority,
            peace_kib: OnceLock::new(),
        })
    }

    fn start(&self, attack: &'static Attack, name: &str) -> Result<(Server, Board)> {
        let mut struck = ServerConfig::clone(&self.for_years);
        struck.send_tls13_tickets = attack.tickets;
        let server = Server::start(attack, name, [Arc::clone(&self.for_years), Arc::new(struck)])?;
        let board = Board::new(&self.home, attack, name, &server, &self.authority)?;
        Ok((server, board))
    }

    /// What a board needs that nobody disturbs, KiB; measured once, beside the others.
    pub fn peace_kib(&self) -> Result<u64> {
        static PEACEFUL: Attack = Attack { name: "undisturbed", ..USUAL };
        let measure = || {
            let (server, mut board) = self.start(&PEACEFUL, PEACEFUL.name)?;
            board.start(&self.home)?;
            wait_until("a renewal in peace", START, || {
                some(!server.record().renewals.is_empty(), || board.log_tail())
            })?;
            sleep(PEACE);
            board.check()?;
            Ok(board.observed().peak_kib)
        };
        self.peace_kib.get_or_init(measure).clone()
    }
}

fn config(pair: &Keypair) -> Result<Arc<ServerConfig>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?
        .with_no_client_auth()
        .with_single_cert(pair.chain.clone(), pair.secret())
        .map_err(|e| e.to_string())?;
    Ok(Arc::new(config))
}

/// The figures, and what is wrong with them.
pub fn run(ground: &Ground, attack: &'static Attack) -> (Figures, Vec<String>) {
    let (server, mut board) = match ground.start(attack, attack.name) {
        Ok(both) => both,
        Err(error) => return (Figures::default(), vec![error]),
    };
    let mut complaints = Vec::new();
    let mut times = Times { started: Instant::now(), struck: Instant::now(), ended: Instant::now() };
    if let Err(error) = before_the_end(ground, attack, &server, &mut board, &mut times, &mut complaints) {
        complaints.push(error);
    }
    let peace_kib = ground.peace_kib().unwrap_or_else(|error| {
        complaints.push(error);
        0
    });
    let (record, seen) = (server.record(), board.observed());
    let mut figures = Figures::of(attack, &record, &seen, times, peace_kib);
    figures.hits = if matches!(attack.act, super::attack::Act::Nothing) { 1 } else { server.hits() };
    match board.stop(END * 3) {
        Ok(took) => figures.end = Some(took),
        Err(error) => complaints.push(error),
    }
    complaints.extend(figures.complaints(attack));
    complaints.extend(broken_holds(attack, &record, &seen, times));
    complaints.extend(seen.complaints);
    if !complaints.is_empty() {
        complaints.push(board.log_tail());
    }
    (figures, complaints)
}

/// Everything up to the moment at which the attack goes on again and SIGTERM is due.
fn before_the_end(
    ground: &Ground,
    attack: &'static Attack,
    server: &Server,
    board: &mut Board,
    times: &mut Times,
    complaints: &mut Vec<String>,
) -> Result<()> {
    times.started = Instant::now();
    let in_peace = matches!(attack.from, From::Peace | From::PeaceAndAgain);
    server.set_attack(!in_peace);
    board.start(&ground.home)?;
    if in_peace {
        wait_until("the first renewal", START, || some(!server.record().renewals.is_empty(), || board.log_tail()))?;
        server.set_attack(true);
    }
    times.struck = Instant::now();
    strike(attack, board)?;
    let half = Duration::from_secs(attack.seconds) / 2;
    sleep(half);
    if matches!(attack.from, From::StartAndAgain | From::PeaceAndAgain) {
        let took = board.stop(END * 3)?;
        if took > END {
            complaints.push(format!("the first SIGTERM took {took:?}"));
        }
        board.start(&ground.home)?;
    }
    sleep(half);
    board.check()?;
    if attack.new_certificate {
        server.set_tls(Arc::clone(&ground.for_a_week));
    }
    server.set_attack(false);
    times.ended = Instant::now();
    let came = |server: &Server, ended| {
        let record = server.record();
        let is_after = |sign: &Instant| *sign >= ended;
        let by_heartbeat = attack.renewals == Renewals::OrHeartbeats && record.heartbeats.iter().any(is_after);
        by_heartbeat || record.renewals.iter().any(is_after)
    };
    wait_until("a renewal after the attack", longest_gap_of(attack) * 2, || {
        some(came(server, times.ended), String::new)
    })?;
    for hold in attack.holds {
        let held = |server: &Server| match hold {
            Hold::Told(reason, count) => server.told().iter().filter(|told| told == reason).count() >= *count,
            Hold::Ready => server.ready() == "True",
            _ => true,
        };
        wait_until(&format!("{hold:?}"), TELLING, || some(held(server), || format!("{:?}", server.told())))?;
    }
    server.set_attack(true);
    let before = server.hits();
    strike(attack, board)?;
    let has_act = !matches!(attack.act, super::attack::Act::Nothing);
    if has_act {
        // An attack on what is asked once, at the start, hits nothing now.
        let _ = wait_until("a hit", NEXT_HIT, || some(server.hits() > before, String::new));
    }
    sleep(Duration::from_secs(1));
    Ok(())
}

fn strike(attack: &Attack, board: &mut Board) -> Result<()> {
    board.fill_pipe()?;
    if let Some(strike) = attack.strike {
        strike(&board.folder)?;
        board.signal(Signal::SIGHUP)?;
    }
    Ok(())
}

fn some(holds: bool, otherwise: impl FnOnce() -> String) -> Result<()> {
    if holds { Ok(()) } else { Err(otherwise()) }
}
