//! Turns plug-ins that register, lie, say nothing or are not there into what is known of their devices.

use std::io::{Read, Write};
use std::thread::{Builder, JoinHandle};

use super::super::loopback::TempFolder;
use super::*;
use crate::protobuf::put_bytes;

const NAME: &str = "example.com/usb";

fn request(resource: &str, file_name: &str) -> Vec<u8> {
    let mut message = Vec::new();
    for (number, text) in (1..).zip(["v1beta1", file_name, resource]) {
        put_bytes(&mut message, number, text.as_bytes());
    }
    message
}

fn list(healths: &[&str]) -> Vec<u8> {
    let mut message = Vec::new();
    for (place, health) in healths.iter().enumerate() {
        let mut device = Vec::new();
        put_bytes(&mut device, 1, format!("device-{place}").as_bytes());
        put_bytes(&mut device, 2, health.as_bytes());
        put_bytes(&mut message, 1, &device);
    }
    message
}

fn thread<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    Builder::new().spawn(run).unwrap()
}

/// Registers, and answers why not.
fn register(folder: &str, resource: &str, file_name: &str) -> Result<(), String> {
    let mut stream = UnixStream::connect([folder, "/", SOCKET].concat()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut client = Client::default();
    client.call(REGISTER, &request(resource, file_name), "10S", Answer::Whole { most_bytes: 100 }).unwrap();
    loop {
        let (mut output, mut bytes) = (Vec::new(), [0; 1000]);
        client.take_output(&mut output);
        stream.write_all(&output).unwrap();
        if let Some(Progress::Ended(_, outcome)) = client.next_progress().unwrap() {
            return outcome.map(|message| assert_eq!(message, b"")).map_err(|status| status.message);
        }
        let count = stream.read(&mut bytes).unwrap();
        assert!(count > 0, "it hung up");
        client.receive(&bytes[..count]);
    }
}

/// The socket of a plug-in that answers what it is asked: with nothing to its options, with this list to the rest, and then hangs up.
fn plug_in(path: &str, devices: Vec<u8>) -> JoinHandle<Vec<String>> {
    let listener = UnixListener::bind(path).unwrap();
    thread(move || {
        let (mut stream, mut server, mut asked) = (listener.accept().unwrap().0, Server::default(), Vec::new());
        loop {
            let (mut output, mut bytes) = (Vec::new(), [0; 1000]);
            server.take_output(&mut output);
            stream.write_all(&output).unwrap();
            if asked.len() == 2 {
                return asked;
            }
            let count = stream.read(&mut bytes).unwrap();
            server.receive(&bytes[..count]);
            while let Some(call) = server.next_call().unwrap() {
                server.answer(call.id, if call.path == OPTIONS { b"" } else { &devices });
                asked.push(call.path);
            }
        }
    })
}

/// Serves while this thread goes on, and a moment longer, in which `is_seen` has to become true.
fn serve<T>(plugins: &DevicePlugins, thread: JoinHandle<T>, is_seen: impl Fn() -> bool) -> T {
    let reactor = Reactor::new().unwrap();
    let until = async {
        let deadline = clock::up() + Duration::from_secs(30);
        while (!thread.is_finished() || !is_seen()) && clock::up() < deadline {
            reactor.sleep_until(clock::up() + Duration::from_millis(5)).await;
        }
    };
    reactor.block_on(until.or(plugins.serve(&reactor))).unwrap();
    assert!(is_seen());
    thread.join().unwrap()
}

/// All, and those that are not healthy.
fn counts(plugins: &DevicePlugins) -> Option<(u64, u64)> {
    let (mut all, mut unhealthy) = (TextMap::new(), TextMap::new());
    plugins.count(&mut all, &mut unhealthy);
    let all = *all.get(NAME)?.as_ref().unwrap();
    Some((all, unhealthy.get(NAME).copied().unwrap_or(0)))
}

#[test]
fn sockets_that_were_left_are_removed_and_one_that_answers_is_left_to_its_owner() {
    let folder = TempFolder::new();
    let path = folder.path("plug-ins");
    fs::create_dir(&path).unwrap();
    let [old, left, plain] = [SOCKET, "left.sock", "plain"].map(|name| [&path, "/", name].concat());
    for socket in [&old, &left] {
        drop(UnixListener::bind(socket).unwrap());
    }
    fs::write(&plain, "kept").unwrap();
    let first = DevicePlugins::new(Some(&path));
    assert!(UnixStream::connect(&old).is_ok() && !fs::exists(&left).unwrap() && fs::exists(&plain).unwrap());
    let second = DevicePlugins::new(Some(&path));
    assert!(second.listener.take().is_none(), "somebody is there already");
    assert!(UnixStream::connect(&old).is_ok() && first.listener.take().is_some());
    assert!(DevicePlugins::new(None).listener.take().is_none(), "nobody wants to");
    assert!(DevicePlugins::new(Some(&plain)).listener.take().is_none(), "no folder");
}

#[test]
fn a_plug_in_is_answered_once_it_has_answered_and_refused_where_it_is_not_there() {
    let folder = TempFolder::new();
    let path = folder.path("plug-ins");
    let plugins = DevicePlugins::new(Some(&path));
    let asked = plug_in(&format!("{path}/usb.sock"), list(&["Healthy", "Sick", "Healthy"]));
    let directory = path.clone();
    // It has told its list, and hangs up after that.
    let registered =
        serve(&plugins, thread(move || register(&directory, NAME, "usb.sock")), || counts(&plugins) == Some((3, 3)));
    assert_eq!(registered, Ok(()));
    assert_eq!(asked.join().unwrap(), [OPTIONS, LIST_AND_WATCH]);
    assert_eq!((plugins.registering.get() <= 1, plugins.listened_to.borrow().len()), (true, 0));
    let plugins = DevicePlugins::new(Some(&folder.path("others")));
    let directory = folder.path("others");
    let tries = move || {
        [(NAME, "none.sock"), ("cpu", "usb.sock"), (NAME, "../usb.sock")]
            .map(|(resource, file_name)| register(&directory, resource, file_name).unwrap_err())
    };
    let [missing, name, endpoint] = serve(&plugins, thread(tries), || true);
    assert!(missing.starts_with("failed to dial device plugin: ") && missing.contains("none.sock"), "{missing}");
    assert_eq!(name, "the ResourceName \"cpu\" is invalid");
    assert!(endpoint.contains("is no name of a file beside kubelet.sock"), "{endpoint}");
    assert_eq!(counts(&plugins), None);
}

#[test]
fn who_says_nothing_or_nonsense_keeps_nobody_from_registering() {
    let folder = TempFolder::new();
    let path = folder.path("plug-ins");
    let plugins = DevicePlugins::new(Some(&path));
    let asked = plug_in(&format!("{path}/usb.sock"), list(&["Healthy"]));
    let directory = path.clone();
    let tries = move || {
        let socket = [&directory, "/", SOCKET].concat();
        let silent: Vec<UnixStream> =
            (1..limits::DEVICE_PLUGINS_REGISTERING).map(|_| UnixStream::connect(&socket).unwrap()).collect();
        let mut loud = UnixStream::connect(&socket).unwrap();
        loud.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        // It is told why, and that is the end of it.
        let mut said = Vec::new();
        loud.read_to_end(&mut said).unwrap();
        let registered = register(&directory, NAME, "usb.sock");
        drop(silent);
        registered
    };
    assert_eq!(serve(&plugins, thread(tries), || counts(&plugins).is_some_and(|(all, _)| all == 1)), Ok(()));
    asked.join().unwrap();
}

/// One that says nothing after its options, until it is hung up on.
fn quiet_plug_in(path: &str) -> JoinHandle<()> {
    let listener = UnixListener::bind(path).unwrap();
    thread(move || {
        let (mut stream, mut server) = (listener.accept().unwrap().0, Server::default());
        loop {
            let (mut output, mut bytes) = (Vec::new(), [0; 1000]);
            server.take_output(&mut output);
            stream.write_all(&output).unwrap();
            let count = stream.read(&mut bytes).unwrap();
            if count == 0 {
                return;
            }
            server.receive(&bytes[..count]);
            while let Some(call) = server.next_call().unwrap() {
                if call.path == OPTIONS {
                    server.answer(call.id, b"");
                }
            }
        }
    })
}

#[test]
fn the_connection_of_one_that_another_took_the_place_of_is_given_up() {
    let folder = TempFolder::new();
    let path = folder.path("plug-ins");
    let plugins = DevicePlugins::new(Some(&path));
    let old = quiet_plug_in(&format!("{path}/old.sock"));
    let new = quiet_plug_in(&format!("{path}/new.sock"));
    let tries = thread(move || {
        for file_name in ["old.sock", "new.sock"] {
            assert_eq!(register(&path, NAME, file_name), Ok(()));
        }
        old.join().unwrap();
    });
    serve(&plugins, tries, || plugins.listened_to.borrow().len() == 1);
    // Its socket goes with the task that has it.
    new.join().unwrap();
}
