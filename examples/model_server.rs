//! Turns this machine into a cluster of one that says in plain words what an agent does: the simulator's API server
//! behind TLS on a loopback port, and the agent beside it. `make run` without a cluster.
//!
//! ```text
//! cargo run --example model_server -- --agent target/release/nodepulse [--node NAME] [ARGUMENTS OF THE AGENT]
//! ```
#![allow(clippy::disallowed_methods, reason = "an example may read the clock and has a thread for each connection")]

#[allow(dead_code, reason = "the simulation uses the rest")]
#[path = "../tests/model/mod.rs"]
mod model;

use std::error::Error;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use model::ModelServer;
use model::controller::MONITOR_PERIOD_US;
use model::http::Request;
use model::rights::Caller;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};

/// A connection that says nothing for so long is closed.
const IDLE_LIMIT: Duration = Duration::from_secs(120);

type Failed = Box<dyn Error + Send + Sync>;

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("model_server: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<ExitCode, Failed> {
    let options = Options::read()?;
    // Blocked before any thread is made, so that every thread leaves them to the wait below.
    let mut signals = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGCHLD] {
        signals.add(signal);
    }
    signals.thread_block()?;
    let folder = Folder::new()?;
    let pki = Pki::new(&options.node_name)?;
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let address = listener.local_addr()?;
    let kubeconfig = write_kubeconfig(&folder.0, &pki, &options.node_name, &format!("https://{address}"))?;
    say(&format!("a model API server listens on https://{address}, as the Node {} sees it", options.node_name));
    say(&format!("its kubeconfig is {}", kubeconfig.display()));
    let cluster = Arc::new(Cluster {
        server: Mutex::default(),
        node_name: options.node_name.clone(),
        node_certificate: pki.node_certificate.clone(),
    });
    let tls = Arc::new(pki.server_config()?);
    let (for_connections, for_controllers) = (Arc::clone(&cluster), cluster);
    std::thread::spawn(move || accept_all(&listener, &tls, &for_connections));
    std::thread::spawn(move || run_controllers(&for_controllers));
    let agent = options.agent.as_ref().map(|agent| start_agent(agent, &options, &folder.0, &kubeconfig)).transpose()?;
    wait(&signals, agent)
}

/// Until a signal, or the end of the agent.
fn wait(signals: &SigSet, agent: Option<Child>) -> Result<ExitCode, Failed> {
    let Some(mut agent) = agent else {
        say("no --agent given: start one yourself; Ctrl-C ends this");
        while signals.wait()? == Signal::SIGCHLD {}
        return Ok(ExitCode::SUCCESS);
    };
    loop {
        if signals.wait()? != Signal::SIGCHLD {
            say("asking the agent to stop");
            kill(Pid::from_raw(i32::try_from(agent.id())?), Signal::SIGTERM)?;
            let status = agent.wait()?;
            say(&format!("the agent has stopped ({status})"));
            return Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        if let Some(status) = agent.try_wait()? {
            say(&format!("the agent has ended by itself ({status})"));
            return Ok(ExitCode::FAILURE);
        }
    }
}

struct Options {
    agent: Option<PathBuf>,
    node_name: String,
    agent_arguments: Vec<String>,
}

impl Options {
    fn read() -> Result<Options, Failed> {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_lowercase();
        let host = if host.is_empty() { "edge-1".to_owned() } else { host };
        let mut options = Options { agent: None, node_name: host, agent_arguments: Vec::new() };
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
            match argument.as_str() {
                "--agent" => options.agent = Some(value()?.into()),
                "--node" => options.node_name = value()?,
                _ => options.agent_arguments.push(argument),
            }
        }
        Ok(options)
    }
}

/// A private folder that goes when this program ends.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Folder, Failed> {
        let path = std::env::temp_dir().join(format!("nodepulse-model-{}", std::process::id()));
        std::fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left behind then is a key that nothing accepts any more.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn write_private(path: &Path, text: &str) -> Result<(), Failed> {
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    Ok(())
}

fn write_kubeconfig(folder: &Path, pki: &Pki, node_name: &str, server: &str) -> Result<PathBuf, Failed> {
    write_private(&folder.join("ca.crt"), &pki.authority_pem)?;
    write_private(&folder.join("node.crt"), &pki.node_pem)?;
    write_private(&folder.join("node.key"), &pki.node_key_pem)?;
    let path = folder.join("kubeconfig.yaml");
    let user = format!("system:node:{node_name}");
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: model\n\
         clusters:\n- name: model\n  cluster: {{server: \"{server}\", certificate-authority: ca.crt}}\n\
         users:\n- name: \"{user}\"\n  user: {{client-certificate: node.crt, client-key: node.key}}\n\
         contexts:\n- name: model\n  context: {{cluster: model, user: \"{user}\"}}\n"
    );
    write_private(&path, &text)?;
    Ok(path)
}

fn start_agent(agent: &Path, options: &Options, folder: &Path, kubeconfig: &Path) -> Result<Child, Failed> {
    let settings = folder.join("config.yaml");
    let state = folder.join("state");
    std::fs::create_dir(&state)?;
    let text =
        format!("apiVersion: nodepulse.dev/v1\nkind: NodePulseConfiguration\nstateDirectory: {}\n", state.display());
    write_private(&settings, &text)?;
    let mut command = Command::new(agent);
    command.arg("run").arg("--config").arg(settings).arg("--kubeconfig").arg(kubeconfig);
    command.arg("--hostname-override").arg(&options.node_name).args(&options.agent_arguments);
    // A group of its own: Ctrl-C reaches this program only, which then ends the agent as a service manager would.
    command.process_group(0);
    command.spawn().map_err(|error| format!("{}: {error}", agent.display()).into())
}

/// A certificate authority, a server and one node, made anew at each start.
struct Pki {
    authority: CertificateDer<'static>,
    authority_pem: String,
    server_certificate: CertificateDer<'static>,
    server_key: Vec<u8>,
    node_certificate: CertificateDer<'static>,
    node_pem: String,
    node_key_pem: String,
}

impl Pki {
    fn new(node_name: &str) -> Result<Pki, Failed> {
        let mut authority = CertificateParams::new(Vec::new())?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.distinguished_name.push(DnType::CommonName, "nodepulse model");
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;
        let server = CertificateParams::new(vec!["127.0.0.1".to_owned(), "localhost".to_owned()])?;
        let server_key = KeyPair::generate()?;
        let server = server.signed_by(&server_key, &authority)?;
        let mut node = CertificateParams::new(Vec::new())?;
        node.distinguished_name.push(DnType::OrganizationName, "system:nodes");
        node.distinguished_name.push(DnType::CommonName, format!("system:node:{node_name}"));
        let node_key = KeyPair::generate()?;
        let node = node.signed_by(&node_key, &authority)?;
        Ok(Pki {
            authority: authority.der().clone(),
            authority_pem: authority.pem(),
            server_certificate: server.der().clone(),
            server_key: server_key.serialize_der(),
            node_certificate: node.der().clone(),
            node_pem: node.pem(),
            node_key_pem: node_key.serialize_pem(),
        })
    }

    fn server_config(&self) -> Result<ServerConfig, Failed> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.clone())?;
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
        let clients = clients.allow_unauthenticated().build()?;
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let config = config.with_client_cert_verifier(clients);
        let key = PrivatePkcs8KeyDer::from(self.server_key.clone());
        Ok(config.with_single_cert(vec![self.server_certificate.clone()], key.into())?)
    }
}

struct Cluster {
    server: Mutex<ModelServer>,
    node_name: String,
    node_certificate: CertificateDer<'static>,
}

impl Cluster {
    fn server(&self) -> MutexGuard<'_, ModelServer> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn caller(&self, connection: &ServerConnection) -> Caller {
        match connection.peer_certificates().and_then(<[_]>::first) {
            Some(certificate) if *certificate == self.node_certificate => Caller::Node(self.node_name.clone()),
            _ => Caller::Nobody,
        }
    }
}

fn run_controllers(cluster: &Cluster) {
    loop {
        std::thread::sleep(Duration::from_micros(MONITOR_PERIOD_US as u64));
        let happened = {
            let mut server = cluster.server();
            server.tick(unix_us());
            std::mem::take(&mut server.controllers.happened)
        };
        happened.iter().for_each(|line| say(line));
    }
}

fn accept_all(listener: &TcpListener, tls: &Arc<ServerConfig>, cluster: &Arc<Cluster>) {
    for stream in listener.incoming() {
        let Ok(stream) = stream else { continue };
        let (tls, cluster) = (Arc::clone(tls), Arc::clone(cluster));
        std::thread::spawn(move || {
            say("a connection is opened");
            let why = serve(stream, tls, &cluster).err().map(|error| format!(": {error}"));
            say(&format!("a connection is closed{}", why.unwrap_or_default()));
        });
    }
}

fn serve(stream: TcpStream, tls: Arc<ServerConfig>, cluster: &Cluster) -> Result<(), Failed> {
    stream.set_read_timeout(Some(IDLE_LIMIT))?;
    stream.set_nodelay(true)?;
    let mut stream = StreamOwned::new(ServerConnection::new(tls)?, stream);
    let mut received = Vec::new();
    let mut chunk = [0; 16 * 1024];
    loop {
        while let Some((request, used)) = Request::parse(&received)? {
            received.drain(..used);
            let caller = cluster.caller(&stream.conn);
            let (response, line) = cluster.server().answer_aloud(&request, &caller, unix_us());
            stream.write_all(&response.to_bytes())?;
            stream.flush()?;
            say(&line);
        }
        match stream.read(&mut chunk)? {
            0 => return Ok(()),
            read => received.extend_from_slice(&chunk[..read]),
        }
    }
}

fn unix_us() -> i64 {
    let elapsed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(elapsed.as_micros()).unwrap_or(i64::MAX)
}

fn say(line: &str) {
    println!("model cluster: {line}");
}
