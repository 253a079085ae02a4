//! Turns the whole loop loose on a scripted API server: real sockets, TLS, signals and clock.

#![allow(clippy::disallowed_methods, reason = "the loop is stopped by a signal that another thread sends")]

use std::io::Write;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use nix::sys::pthread::{Pthread, pthread_kill, pthread_self};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::*;
use crate::config::kubeconfig::{Credentials, Material};
use crate::io::loopback::{
    Authority, Listener, Stream, TempFolder, echoing, json_reply, kubeconfig, read_request, version_reply,
};
use crate::probe::facts::{Absent, FileSystem, Why};

const PATIENCE: Duration = Duration::from_secs(20);

/// Just enough of an API server: what is created exists from then on.
fn answer(request: &str, node: &Mutex<Value>) -> Vec<u8> {
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let mut words = head.split(' ');
    let (verb, path) = (words.next().unwrap(), words.next().unwrap().split('?').next().unwrap());
    match (verb, path) {
        ("GET", "/version") => version_reply(),
        ("GET", _) => json_reply("404 Not Found", r#"{"kind":"Status","reason":"NotFound"}"#),
        ("POST", "/api/v1/nodes") => {
            let mut created: Value = serde_json::from_str(body).unwrap();
            created["metadata"]["uid"] = json!("6f1c4a52-0000-4000-8000-000000000001");
            created["metadata"]["resourceVersion"] = json!("7");
            *node.lock().unwrap() = created;
            json_reply("201 Created", &node.lock().unwrap().to_string())
        }
        ("PATCH", "/api/v1/nodes/board/status") => json_reply("200 OK", &node.lock().unwrap().to_string()),
        ("POST", _) => protobuf_reply("201 Created"),
        _ => protobuf_reply("200 OK"),
    }
}

/// What nobody reads.
fn protobuf_reply(status: &str) -> Vec<u8> {
    let reply = String::from_utf8(json_reply(status, "")).unwrap();
    reply.replace("json", "vnd.kubernetes.protobuf").into_bytes()
}

fn api_server(authority: &Authority) -> (Listener, Receiver<String>) {
    let (requests, seen) = channel();
    let requests: Mutex<Sender<String>> = Mutex::new(requests);
    let node = Mutex::new(Value::Null);
    let config = authority.server_config(&authority.sign(&["127.0.0.1"]));
    let server = Listener::tls(config, move |_, mut stream: Stream| {
        while let Some(request) = read_request(&mut stream) {
            let reply = answer(&request, &node);
            let line = request.lines().next().unwrap_or_default().to_owned();
            let _ = requests.lock().unwrap().send(line);
            if stream.write_all(&echoing(&request, &reply)).is_err() {
                return;
            }
        }
    });
    (server, seen)
}

fn wait_for(seen: &Receiver<String>, start: &str) {
    let mut lines = Vec::new();
    while let Ok(line) = seen.recv_timeout(PATIENCE) {
        if line.starts_with(start) {
            return;
        }
        lines.push(line);
    }
    panic!("no {start} among {lines:#?}");
}

fn absent<T>() -> Result<T, Absent> {
    Err(Absent { path: "/none".to_owned(), why: Why::NoSuchFile })
}

fn machine() -> Machine {
    Machine {
        hostname: Ok("board".to_owned()),
        machine_id: Ok("0123456789abcdef0123456789abcdef".to_owned()),
        system_uuid: absent(),
        boot_id: Ok("1fd52ea7-0f0b-4a1e-9a3c-000000000001".to_owned()),
        architecture: absent(),
        kernel_release: Ok("6.12.0".to_owned()),
        os_image: Ok("Debian GNU/Linux 13 (trixie)".to_owned()),
        board_model: absent(),
        board_compatible: absent(),
        board_serial: absent(),
        mac_address: absent(),
        passed_over: Vec::new(),
        cpu_count: Ok(4),
        memory_total_bytes: Ok(1 << 30),
        swap_total_bytes: absent(),
        reset_reason: absent(),
        hugepages: Vec::new(),
        features: None,
    }
}

/// The loop in a thread of its own.
struct Running {
    thread: Pthread,
    ended: JoinHandle<Result<(), Notice>>,
    reloads: Receiver<()>,
}

fn run_against(kubeconfig: Kubeconfig) -> Running {
    // No test leaves anything on this machine.
    run_with(Settings { state_directory: "/nonexistent/state".to_owned(), ..Settings::default() }, kubeconfig)
}

fn run_with(settings: Settings, kubeconfig: Kubeconfig) -> Running {
    run_changed(settings, kubeconfig, |_| {})
}

fn run_changed(
    settings: Settings,
    kubeconfig: Kubeconfig,
    change: impl FnOnce(&mut Start) + Send + 'static,
) -> Running {
    let (own_thread, thread) = channel();
    let (reloaded, reloads) = channel();
    let ended = std::thread::spawn(move || {
        own_thread.send(pthread_self()).unwrap();
        let for_reload = kubeconfig.clone();
        let mut start = Start {
            // It would hold for every test of this process.
            settings: Settings { sandbox: false, ..settings },
            files: Vec::new(),
            kubeconfig: Some(kubeconfig),
            read_means: Arc::new(|_| Err("nothing to join with".to_owned())),
            node_name: "board".to_owned(),
            root: Root::new("/nonexistent"),
            last_reset: Default::default(),
            machine: machine(),
            read_disk: Arc::new(|_| StateDisk { file_system: absent(), may_hang: false, real_path: None }),
            look_at_files: Box::new(Vec::new),
            ends_when_ready: false,
            leaving: String::new(),
            read_settings: Arc::new(move |_| {
                reloaded.send(()).unwrap();
                Ok((Settings::default(), Some(for_reload.clone())))
            }),
        };
        change(&mut start);
        run(start)
    });
    Running { thread: thread.recv().unwrap(), ended, reloads }
}

impl Running {
    fn signal(&self, signal: Signal) {
        pthread_kill(self.thread, signal).unwrap();
    }

    fn stop(self) {
        self.signal(Signal::SIGTERM);
        assert_eq!(self.ended.join().unwrap(), Ok(()));
    }
}

#[test]
fn a_board_registers_gets_its_lease_and_stops_when_asked() {
    let authority = Authority::new();
    let (server, seen) = api_server(&authority);
    let running = run_against(kubeconfig(&authority, server.port));
    wait_for(&seen, "POST /api/v1/nodes ");
    wait_for(&seen, "POST /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases");
    assert_eq!(server.accepted(), 1, "all lanes share one connection");
    running.stop();
}

#[test]
fn who_only_waits_for_the_node_is_told_by_the_end() {
    let authority = Authority::new();
    let (server, seen) = api_server(&authority);
    let settings = Settings { state_directory: "/nonexistent/state".to_owned(), ..Settings::default() };
    // Without a capacity the Node would not be Ready.
    let disk =
        FileSystem { capacity_bytes: 1 << 30, available_bytes: 1 << 29, inodes: 9, inodes_free: 9, read_only: false };
    let read_disk = move |_| StateDisk { file_system: Ok(disk), may_hang: false, real_path: None };
    let running = run_changed(settings, kubeconfig(&authority, server.port), move |start| {
        (start.read_disk, start.ends_when_ready) = (Arc::new(read_disk), true);
    });
    wait_for(&seen, "POST /api/v1/nodes ");
    wait_for(&seen, "POST /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases");
    let start = clock::up();
    while !running.ended.is_finished() {
        assert!(clock::up() - start < PATIENCE, "it goes on, though the Node is Ready");
        std::thread::yield_now();
    }
    assert_eq!(running.ended.join().unwrap(), Ok(()));
}

#[test]
fn what_was_learned_of_the_server_is_on_disk_soon_and_for_nobody_else() {
    let authority = Authority::new();
    let (server, seen) = api_server(&authority);
    let folder = TempFolder::new();
    let mut by_name = kubeconfig(&authority, server.port);
    by_name.server.host = "localhost".to_owned();
    by_name.tls_server_name = Some("127.0.0.1".to_owned());
    let settings = Settings { state_directory: folder.path(""), ..Settings::default() };
    let running = run_with(settings, by_name);
    wait_for(&seen, "POST /api/v1/nodes ");
    let start = clock::up();
    let text = loop {
        match std::fs::read_to_string(folder.path("uplink")) {
            Ok(text) => break text,
            Err(error) => assert!(clock::up() - start < PATIENCE, "{error}"),
        }
        std::thread::yield_now();
    };
    assert!(text.contains("\naddress localhost 127.0.0.1\n"), "{text}");
    running.stop();
}

#[test]
fn sighup_reads_the_settings_again_and_the_loop_goes_on() {
    let authority = Authority::new();
    let (server, seen) = api_server(&authority);
    let running = run_against(kubeconfig(&authority, server.port));
    wait_for(&seen, "POST /api/v1/nodes ");
    running.signal(Signal::SIGHUP);
    running.reloads.recv_timeout(PATIENCE).unwrap();
    wait_for(&seen, "POST /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases");
    running.stop();
}

/// Never comes back.
fn hang<T>() -> T {
    loop {
        std::thread::park();
    }
}

/// Renewals each second, and looks at the board as often.
fn hasty() -> Settings {
    Settings {
        state_directory: "/nonexistent/state".to_owned(),
        node_lease_duration_seconds: 4,
        node_status_update_frequency: Duration::from_secs(1),
        ..Settings::default()
    }
}

const RENEWAL: &str = "PATCH /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/board";

fn assert_renews_and_stops(running: Running, seen: &Receiver<String>) {
    while seen.try_recv().is_ok() {}
    for _ in 0..4 {
        let start = clock::up();
        wait_for(seen, RENEWAL);
        assert!(clock::up() - start < Duration::from_secs(3), "a renewal waited for what hangs");
    }
    let start = clock::up();
    running.stop();
    assert!(clock::up() - start < Duration::from_secs(3), "the end waited for what hangs");
}

#[test]
fn a_disk_that_never_answers_delays_neither_a_renewal_nor_the_end() {
    for answers in [0, 2] {
        let authority = Authority::new();
        let (server, seen) = api_server(&authority);
        let asked = Mutex::new(0);
        let read = move |_| {
            let mut asked = asked.lock().unwrap();
            *asked += 1;
            assert!(*asked <= answers + 1, "a second one asks while the first waits");
            if *asked > answers { hang() } else { StateDisk { file_system: absent(), may_hang: true, real_path: None } }
        };
        let running =
            run_changed(hasty(), kubeconfig(&authority, server.port), |start| start.read_disk = Arc::new(read));
        wait_for(&seen, "POST /api/v1/nodes ");
        wait_for(&seen, RENEWAL);
        assert_renews_and_stops(running, &seen);
    }
}

#[test]
fn settings_that_never_answer_delay_neither_a_renewal_nor_the_end() {
    let authority = Authority::new();
    let (server, seen) = api_server(&authority);
    let (reading, begun) = channel();
    let read = move |_: &Sandbox| {
        reading.send(()).unwrap();
        hang()
    };
    let running =
        run_changed(hasty(), kubeconfig(&authority, server.port), |start| start.read_settings = Arc::new(read));
    wait_for(&seen, RENEWAL);
    for _ in 0..3 {
        running.signal(Signal::SIGHUP);
    }
    begun.recv_timeout(PATIENCE).unwrap();
    assert_renews_and_stops(running, &seen);
    assert!(begun.try_recv().is_err(), "one reads, not three");
}

#[test]
fn settings_that_did_not_answer_are_used_as_soon_as_they_do() {
    let authority = Authority::new();
    let [(server, seen), (other, seen_by_other)] = [api_server(&authority), api_server(&authority)];
    let moved = kubeconfig(&authority, other.port);
    let answers_at = Mutex::new(None);
    let read = move |_: &Sandbox| {
        let answers_at = *answers_at.lock().unwrap().get_or_insert(clock::up() + thread::FILE_PATIENCE * 3 / 2);
        while clock::up() < answers_at {
            std::thread::park_timeout(answers_at - clock::up());
        }
        Ok((hasty(), Some(moved.clone())))
    };
    let running =
        run_changed(hasty(), kubeconfig(&authority, server.port), |start| start.read_settings = Arc::new(read));
    wait_for(&seen, RENEWAL);
    running.signal(Signal::SIGHUP);
    wait_for(&seen_by_other, RENEWAL);
    running.stop();
}

#[test]
fn a_server_that_is_not_trusted_does_not_end_the_loop() {
    let authority = Authority::new();
    let (server, _seen) = api_server(&authority);
    let running = run_against(kubeconfig(&Authority::new(), server.port));
    let start = clock::up();
    while server.accepted() < 2 {
        assert!(clock::up() - start < PATIENCE, "the agent gave up");
        std::thread::yield_now();
    }
    assert!(!running.ended.is_finished());
    running.stop();
}

/// The control plane has moved: settings say where, the files of the identity say who is trusted.
#[test]
fn a_board_that_has_joined_goes_to_the_servers_of_its_settings_and_keeps_its_ca_and_the_servers_before() {
    let (authority, folder) = (Authority::new(), TempFolder::new());
    let ((old, _), (new, seen)) = (api_server(&authority), api_server(&authority));
    let state = folder.path("state");
    let mut known = kubeconfig(&authority, old.port);
    let Credentials::Certificate { certificate: Material::Data(certificate), key: Material::Data(key) } =
        &known.credentials
    else {
        panic!("data")
    };
    std::fs::create_dir_all(format!("{state}/identity")).unwrap();
    std::fs::write(format!("{state}/identity/node.pem"), [certificate.as_slice(), key].concat()).unwrap();
    known.path = format!("{state}/identity/kubeconfig");
    let (path, authorities) = (known.path.clone(), known.certificate_authority.clone());
    let servers = vec![Server { port: new.port, ..known.server.clone() }];
    let running = run_with(Settings { state_directory: state, servers: servers.clone(), ..Settings::default() }, known);
    seen.recv_timeout(PATIENCE).unwrap();
    let kept = Kubeconfig::parse(&std::fs::read_to_string(&path).unwrap(), &path).unwrap();
    let ports: Vec<_> = kept.servers().map(|server| server.port).collect();
    assert_eq!((ports, kept.server.clone()), (vec![new.port, old.port], servers[0].clone()));
    let pem = |material: Option<Material>| match material {
        Some(Material::Data(pem)) => crate::identity::Bundle::read(&pem),
        other => panic!("{other:?}"),
    };
    assert_eq!(pem(kept.certificate_authority), pem(authorities));
    running.stop();
}
