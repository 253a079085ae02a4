//! Turns what a runtime answers, in frames that the tests of `grpc` write, into what is known of it, look after look.

use super::*;
use crate::grpc::tests::{SETTINGS, frame, headers};
use crate::probe::HandlerFeatures;
use crate::protobuf::put_bytes;

const SOCKET: &str = "/run/containerd/containerd.sock";
const DOWN: &str = "container runtime is down";
const NOT_YET: &str = "container runtime status check may not have completed yet";
const NO_NETWORK: &str =
    "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:no cni";

fn message(fields: &[(u8, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    fields.iter().for_each(|(number, field)| put_bytes(&mut bytes, *number, field));
    bytes
}

fn version(name: &str, version: &str) -> Vec<u8> {
    message(&[(1, b"0.1.0"), (2, name.as_bytes()), (3, version.as_bytes()), (4, b"v1")])
}

fn condition(kind: &[u8], is_true: bool, reason: &[u8], text: &[u8]) -> Vec<u8> {
    [message(&[(1, kind), (3, reason), (4, text)]), vec![0x10, u8::from(is_true)]].concat()
}

fn status(conditions: &[Vec<u8>], handlers: &[&[u8]]) -> Vec<u8> {
    let conditions: Vec<(u8, &[u8])> = conditions.iter().map(|one| (1, one.as_slice())).collect();
    let handlers = handlers.iter().flat_map(|name| message(&[(3, &message(&[(1, name)]))]));
    [message(&[(1, &message(&conditions))]), handlers.collect()].concat()
}

/// With a runtime and a network that are ready.
fn well() -> Vec<u8> {
    status(&[condition(b"RuntimeReady", true, b"", b""), condition(b"NetworkReady", true, b"", b"")], &[b"runc", b""])
}

fn unready(kind: &[u8], reason: &[u8], text: &[u8]) -> Vec<u8> {
    let all = [&b"RuntimeReady"[..], b"NetworkReady"];
    let told =
        all.map(|one| if one == kind { condition(one, false, reason, text) } else { condition(one, true, b"", b"") });
    status(&told, &[b"kata"])
}

type Answer = Result<Vec<u8>, (&'static str, &'static str)>;

/// A runtime behind a socket, asked at times that the test chooses.
struct Runtime {
    client: Client,
    now: Up,
    /// What it answers to what it is told of pods.
    takes_pod_cidr: Answer,
    /// What it answers to which images it has.
    images: Answer,
    /// The questions of the last look.
    asked: Vec<Question>,
}

impl Runtime {
    fn new(socket: &str) -> Runtime {
        let now = Up::since_boot(Duration::from_secs(1000));
        let (takes_pod_cidr, images) = (Ok(Vec::new()), Ok(Vec::new()));
        let mut runtime = Runtime { client: Client::new(socket), now, takes_pod_cidr, images, asked: Vec::new() };
        runtime.connect();
        runtime
    }

    fn connect(&mut self) {
        self.client.connected();
        self.receive(SETTINGS).unwrap();
    }

    fn receive(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.client.receive(bytes, &mut Vec::new())
    }

    fn pass(&mut self, seconds: u64) {
        self.now = self.now + Duration::from_secs(seconds);
    }

    /// The questions of one look.
    fn ask(&mut self) -> Result<(), Error> {
        let asked = self.client.ask(self.now, &mut Vec::new());
        self.asked = self.client.asked.iter().map(|(_, question)| *question).collect();
        asked
    }

    /// Answers what it was asked: the message, or fields that refuse.
    fn answer(&mut self, [version, status]: [Answer; 2]) {
        for (stream, question) in self.client.asked.clone() {
            let answer = match question {
                Question::Version => version.clone(),
                Question::Status => status.clone(),
                Question::ImageFileSystem => Ok(message(&[(1, &message(&[(2, &message(&[(1, b"/images")]))]))])),
                Question::Images => self.images.clone(),
                Question::PodCidr => self.takes_pod_cidr.clone(),
            };
            let bytes = match answer {
                Ok(answer) => {
                    let length = u32::try_from(answer.len()).unwrap().to_be_bytes();
                    let content = frame(0, 0, stream, &[&[0], &length[..], &answer].concat());
                    let ended = headers(stream, &[("grpc-status", "0")], 1);
                    [headers(stream, &[(":status", "200")], 0), content, ended].concat()
                }
                Err((code, text)) => {
                    headers(stream, &[(":status", "200"), ("grpc-status", code), ("grpc-message", text)], 1)
                }
            };
            self.receive(&bytes).unwrap();
        }
    }

    /// One look at a runtime that answers Version well, and this to Status.
    fn look(&mut self, status: Vec<u8>) -> Vec<String> {
        self.ask().unwrap();
        self.answer([Ok(version("containerd", "v2.2.9")), Ok(status)]);
        self.problems()
    }

    fn said(&self) -> ContainerRuntime {
        self.client.said(self.now)
    }

    fn problems(&self) -> Vec<String> {
        self.said().problems
    }
}

#[test]
fn a_runtime_that_is_well_is_all_that_a_node_says_of_one() {
    let mut runtime = Runtime::new(SOCKET);
    assert_eq!(runtime.said().version, "containerd://Unknown");
    assert_eq!(runtime.problems(), [NOT_YET, "network state unknown"]);
    assert_eq!(runtime.look(well()), [""; 0]);
    let said = runtime.said();
    let handlers =
        ["", "runc"].map(|name| RuntimeHandler { name: name.to_owned(), features: HandlerFeatures::default() });
    assert_eq!((said.version.as_str(), said.features, said.trouble), ("containerd://2.2.9", None, None));
    assert_eq!(said.handlers, handlers);
}

#[test]
fn what_is_not_ready_is_named_in_a_kubelets_words() {
    let mut runtime = Runtime::new(SOCKET);
    assert_eq!(runtime.look(unready(b"NetworkReady", b"NetworkPluginNotReady", b"no cni")), [NO_NETWORK]);
    assert_eq!(runtime.said().handlers.len(), 1, "the runtime itself is well");
    assert_eq!(runtime.look(well()), [""; 0]);
    let broken = "container runtime not ready: RuntimeReady=false reason:Broken message:disk";
    assert_eq!(runtime.look(unready(b"RuntimeReady", b"Broken", b"disk")), [broken]);
    assert_eq!(runtime.said().handlers.len(), 2, "of one that is not ready what was known before stays");
    runtime.pass(30);
    assert_eq!(runtime.problems(), [DOWN, broken], "it was asked thirty seconds ago and has not said that it is ready");
    let others = [condition(b"RuntimeReady", true, b"", b""), condition(b"Other", false, b"", b"")];
    assert_eq!(runtime.look(status(&others, &[])), ["container runtime network not ready: <nil>"]);
    assert_eq!(
        runtime.look(status(&[condition(b"RuntimeReady", false, b"", b"")], &[])).len(),
        1,
        "half a status says nothing"
    );
    assert!(runtime.said().trouble.unwrap().contains("not understood"));
}

#[test]
fn a_frozen_runtime_is_down_after_half_a_minute_and_given_up() {
    let mut runtime = Runtime::new(SOCKET);
    runtime.look(well());
    runtime.pass(10);
    runtime.ask().unwrap();
    for (seconds, ended, problems, version) in [
        (10, Ok(()), &[][..], "containerd://Unknown"),
        (10, Err(Error::Silent), &[], "containerd://Unknown"),
        (9, Ok(()), &[], "containerd://Unknown"),
        (1, Ok(()), &[DOWN], "containerd://Unknown"),
    ] {
        runtime.pass(seconds);
        let asked = runtime.ask();
        assert_eq!(asked, ended);
        if let Err(error) = asked {
            runtime.client.disconnected(error.to_string(), runtime.now);
        }
        assert_eq!(
            (runtime.problems(), runtime.said().version.as_str()),
            (problems.iter().map(|&one| one.to_owned()).collect(), version)
        );
    }
    assert!(runtime.client.grpc.is_none());
    runtime.connect();
    assert_eq!(runtime.look(well()), [""; 0], "and is well at once when it answers again");
}

#[test]
fn a_slow_answer_is_taken_with_the_look_that_finds_it() {
    let mut runtime = Runtime::new(SOCKET);
    assert!(runtime.client.is_outdated(runtime.now), "nothing is known yet: it is worth waiting for");
    runtime.ask().unwrap();
    runtime.pass(5);
    runtime.ask().unwrap();
    runtime.answer([Ok(version("containerd", "2.2.9")), Ok(well())]);
    assert_eq!(runtime.problems(), [""; 0]);
    assert!(!runtime.client.is_outdated(runtime.now) && !runtime.client.is_waiting());
    runtime.pass(21);
    assert!(runtime.client.is_outdated(runtime.now), "looks are rare");
}

#[test]
fn a_killed_runtime_has_no_version_at_once_and_is_down_after_half_a_minute() {
    let mut runtime = Runtime::new(SOCKET);
    runtime.look(well());
    runtime.client.disconnected("nobody listens there".to_owned(), runtime.now);
    let said = runtime.said();
    assert_eq!((said.version.as_str(), said.problems.len(), said.handlers.len()), ("containerd://Unknown", 0, 2));
    assert_eq!(said.trouble.as_deref(), Some("nobody listens there"));
    runtime.pass(30);
    assert_eq!(runtime.problems(), [DOWN]);
}

#[test]
fn its_name_is_that_of_its_socket_until_it_says_one_and_then_stays() {
    for (socket, expected) in [
        ("/run/k3s/containerd/containerd.sock", "containerd://Unknown"),
        ("/run/crio/crio.sock", "cri-o://Unknown"),
        ("/run/cri-dockerd.sock", "docker://Unknown"),
        ("/run/else.sock", "unknown://Unknown"),
    ] {
        assert_eq!(Client::new(socket).said(Up::BOOT).version, expected);
    }
    let mut runtime = Runtime::new("/run/else.sock");
    for (name, expected) in [("cri-o", "cri-o://1.36.3"), ("other", "cri-o://1.36.3")] {
        runtime.ask().unwrap();
        runtime.answer([Ok(version(name, "1.36.3")), Ok(well())]);
        assert_eq!(runtime.said().version, expected);
    }
}

#[test]
fn of_a_containerd_without_cri_its_own_services_say_what_they_know() {
    let mut runtime = Runtime::new(SOCKET);
    runtime.ask().unwrap();
    let unknown = ("12", "unknown service runtime.v1.RuntimeService");
    runtime.answer([Err(unknown), Err(unknown)]);
    assert!(runtime.client.is_outdated(runtime.now), "it is asked otherwise at once");
    runtime.ask().unwrap();
    runtime.answer([Ok(b"\x0a\x06v1.7.3\x12\x03abc".to_vec()), Ok(b"\x08\x01".to_vec())]);
    let said = runtime.said();
    assert_eq!((said.version.as_str(), said.problems), ("containerd://1.7.3", vec![]));
    assert!(said.trouble.unwrap().contains("no CRI"));
    runtime.ask().unwrap();
    runtime.answer([Ok(b"\x0a\x06v1.7.3".to_vec()), Ok(b"\x08\x02".to_vec())]);
    assert_eq!(runtime.problems(), ["container runtime not ready: it does not serve"]);
}

#[test]
fn a_refused_question_leaves_the_rest_as_it_was() {
    let mut runtime = Runtime::new(SOCKET);
    runtime.look(well());
    runtime.ask().unwrap();
    runtime.answer([Err(("2", "no")), Ok(well())]);
    assert_eq!((runtime.said().version.as_str(), runtime.problems().len()), ("containerd://Unknown", 0));
    runtime.ask().unwrap();
    runtime.answer([Ok(version("containerd", "2.2.9")), Err(("2", "no"))]);
    assert_eq!((runtime.said().version.as_str(), runtime.problems().len()), ("containerd://2.2.9", 0));
    assert_eq!(runtime.said().trouble.as_deref(), Some("Status: no (code 2 of gRPC)"));
}

#[test]
fn one_that_goes_or_is_none_needs_another_connection() {
    let mut runtime = Runtime::new(SOCKET);
    runtime.look(well());
    runtime.receive(&frame(7, 0, 0, &[0, 0, 0, 5, 0, 0, 0, 0])).unwrap();
    assert_eq!(runtime.ask(), Err(Error::Closing));
    let mut other = Client::new(SOCKET);
    other.connected();
    assert!(matches!(other.receive(b"-ERR unknown command\r\n-ERR", &mut Vec::new()), Err(Error::Broken(_))));
}

#[test]
fn where_its_images_are_is_asked_at_first_every_five_minutes_and_of_each_connection() {
    let mut runtime = Runtime::new(SOCKET);
    assert_eq!(runtime.client.image_path(), None);
    runtime.look(well());
    assert_eq!(runtime.client.image_path(), Some("/images"));
    let asks = |runtime: &mut Runtime, seconds| {
        runtime.pass(seconds);
        runtime.look(well());
        runtime.asked.contains(&Question::ImageFileSystem)
    };
    assert_eq!([10, 280, 10, 10].map(|seconds| asks(&mut runtime, seconds)), [false, false, true, false]);
    runtime.client.disconnected(String::new(), runtime.now);
    runtime.connect();
    assert!(asks(&mut runtime, 1));
}

#[test]
fn the_addresses_of_pods_are_told_until_they_are_taken_and_to_each_connection() {
    let mut runtime = Runtime::new(SOCKET);
    let told = |runtime: &mut Runtime, pod_cidr: Option<&str>| {
        runtime.client.tell_pod_cidr(pod_cidr.map(str::to_owned));
        runtime.look(well());
        (runtime.asked.contains(&Question::PodCidr), runtime.said().pod_cidr)
    };
    let taken = |is_told, pod_cidr: &str| (is_told, Some(pod_cidr.to_owned()));
    assert_eq!(told(&mut runtime, None), (false, None));
    runtime.takes_pod_cidr = Err(("2", "no template"));
    assert_eq!(told(&mut runtime, Some("10.1.0.0/24")), (true, None));
    assert_eq!(runtime.said().trouble.as_deref(), Some("PodCidr: no template (code 2 of gRPC)"));
    assert_eq!(runtime.problems(), [""; 0], "Ready does not depend on it");
    runtime.takes_pod_cidr = Err(("12", "unknown method"));
    assert_eq!(told(&mut runtime, Some("10.1.0.0/24")), (true, None));
    runtime.takes_pod_cidr = Ok(Vec::new());
    assert_eq!(told(&mut runtime, Some("10.1.0.0/24")), taken(true, "10.1.0.0/24"), "it has CRI all the same");
    assert_eq!(told(&mut runtime, Some("10.1.0.0/24")), taken(false, "10.1.0.0/24"));
    assert_eq!(told(&mut runtime, None), taken(false, "10.1.0.0/24"));
    assert_eq!(told(&mut runtime, Some("10.2.0.0/24")), taken(true, "10.2.0.0/24"));
    runtime.client.disconnected(String::new(), runtime.now);
    runtime.connect();
    assert_eq!(told(&mut runtime, Some("10.2.0.0/24")), taken(true, "10.2.0.0/24"), "it may be another runtime");
}

#[test]
fn its_images_are_asked_for_every_five_minutes_if_some_are_wanted_and_stay_what_they_were() {
    let named = |name: &[u8], bytes: u8| (1, [message(&[(1, name), (2, name)]), vec![0x20, bytes]].concat());
    let list = |images: &[(u8, Vec<u8>)]| {
        let fields: Vec<(u8, &[u8])> = images.iter().map(|(number, image)| (*number, image.as_slice())).collect();
        Ok(message(&fields))
    };
    let mut runtime = Runtime::new(SOCKET);
    runtime.images = list(&[named(b"small", 1), named(b"large", 99)]);
    runtime.look(well());
    assert!(!runtime.asked.contains(&Question::Images), "by default none are wanted");
    let names = |runtime: &Runtime| {
        let all = runtime.said().images.into_iter();
        all.flat_map(|image| image.names).collect::<Vec<String>>()
    };
    runtime.client.want_images(2);
    runtime.look(well());
    assert_eq!(names(&runtime), ["large", "small"]);
    runtime.images = list(&[named(b"other", 7)]);
    for seconds in (10..300).step_by(10) {
        runtime.pass(10);
        runtime.look(well());
        assert!(!runtime.asked.contains(&Question::Images), "{seconds}");
    }
    for (answer, known, trouble) in [
        (Err(("2", "no such content")), ["large", "small"], "Images: no such content (code 2 of gRPC)"),
        (Ok(b"\x0a\x7f".to_vec()), ["large", "small"], "its answer to Images is not understood"),
    ] {
        runtime.images = answer;
        runtime.pass(300);
        runtime.look(well());
        assert_eq!(
            (names(&runtime), runtime.said().trouble.as_deref()),
            (known.map(str::to_owned).to_vec(), Some(trouble))
        );
    }
    runtime.client.want_images(1);
    assert_eq!(names(&runtime), ["large"], "at once");
    runtime.images = list(&[named(b"other", 7), named(b"least", 2)]);
    runtime.look(well());
    assert_eq!((names(&runtime), runtime.said().trouble), (vec!["other".to_owned()], None));
    runtime.client.want_images(0);
    assert_eq!(runtime.said().images, []);
}
