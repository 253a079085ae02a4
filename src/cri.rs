//! Turns what a container runtime answers (CRI v1) into what a Node says of it: version, Ready, handlers, features (RTH-1, RDY-4),
//! which images it has and where they are; and tells it the addresses of pods.
//!
//! ```text
//! connected -> asked: Version, Status -> answered, asked again with the next look
//!                                     -> not answered in ten seconds, twice: the connection is given up
//! ```
//!
//! A look never waits for a runtime that is slow: it takes what was answered by then. A containerd that was set up for Docker
//! has no CRI; it has a version of its own, and says whether it serves.

mod answers;
mod images;

use std::time::Duration;

use crate::config::limits;
use crate::grpc::{self, Answer, CallId, Outcome, Progress, Status};
use crate::http2;
use crate::probe::{ContainerImage, ContainerRuntime, RuntimeFeatures, RuntimeHandler};
use crate::time::Up;
use images::Images;

/// How long a runtime has to answer a call, and so that gRPC understands it.
const PATIENCE: Duration = Duration::from_secs(10);
const TIMEOUT: &str = "10S";
/// One that has not said for so long that it is ready is down.
const DOWN_AFTER: Duration = Duration::from_secs(30);
/// Looks at a board that come more often than that take the answers to what the one before asked.
const FRESH: Duration = Duration::from_secs(20);
/// How often it is asked where its images are, and which it has.
const IMAGE_PERIOD: Duration = Duration::from_secs(300);
/// So many looks in a row whose questions had no answer, and nobody is believed to listen.
const UNANSWERED: u32 = 2;

/// Why a connection to the runtime is of no use any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// What came is no HTTP/2, or breaks its rules.
    Broken(http2::Error),
    /// Nothing is answered.
    Silent,
    /// It takes no more calls on this connection.
    Closing,
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Broken(error) => write!(f, "what it answers is not understood: {}", error.why),
            Error::Silent => write!(f, "it has answered nothing for {} s", PATIENCE.as_secs() * u64::from(UNANSWERED)),
            Error::Closing => f.write_str("it takes no more calls on this connection"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Question {
    Version,
    Status,
    /// Where its images are.
    ImageFileSystem,
    /// Which it has.
    Images,
    /// None, but what it is told.
    PodCidr,
}

/// Which services the runtime has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Services {
    Cri,
    /// Its own ones alone: CRI is switched off.
    Containerd,
}

/// The runtime behind one socket: what it said so far, and what it is asked over the connection that there is.
#[derive(Debug)]
pub struct Client {
    /// By the name of its socket, and then as it calls itself first.
    name: String,
    has_said_name: bool,
    grpc: Option<grpc::Client>,
    services: Services,
    asked: Vec<(CallId, Question)>,
    asked_at: Option<Up>,
    /// Looks in a row after which a question was still open.
    unanswered: u32,
    /// `None`: it did not say when it was asked last.
    version: Option<String>,
    /// It has said once that it is ready.
    was_ready: bool,
    /// Since then it was asked and has not said that it is.
    silent_since: Option<Up>,
    runtime_problem: Option<String>,
    network_problem: Option<String>,
    handlers: Vec<RuntimeHandler>,
    features: Option<RuntimeFeatures>,
    trouble: Option<String>,
    image_path: Option<String>,
    /// The largest, and how many of them are wanted.
    images: Vec<ContainerImage>,
    most_images: usize,
    /// What came of the list that was asked for.
    coming_images: Images,
    /// `None`: to be asked with the next look.
    images_asked_at: Option<Up>,
    /// To be told; what it is told now; and what it took over this connection.
    pod_cidr: Option<String>,
    sent_pod_cidr: Option<String>,
    told_pod_cidr: Option<String>,
}

impl Client {
    /// `socket`: its path, which says whose it may be.
    pub fn new(socket: &str) -> Client {
        let known = [("containerd.sock", "containerd"), ("crio.sock", "cri-o"), ("cri-dockerd.sock", "docker")];
        let name = known.into_iter().find(|(end, _)| socket.ends_with(end)).map_or("unknown", |(_, name)| name);
        Client {
            name: name.to_owned(),
            has_said_name: false,
            grpc: None,
            services: Services::Cri,
            asked: Vec::new(),
            asked_at: None,
            unanswered: 0,
            version: None,
            was_ready: false,
            silent_since: None,
            runtime_problem: None,
            network_problem: Some("network state unknown".to_owned()),
            handlers: Vec::new(),
            features: None,
            trouble: None,
            image_path: None,
            images: Vec::new(),
            most_images: 0,
            coming_images: Images::default(),
            images_asked_at: None,
            pod_cidr: None,
            sent_pod_cidr: None,
            told_pod_cidr: None,
        }
    }

    /// What it is told with the next questions (UPD-1); `None`: nothing new.
    pub fn tell_pod_cidr(&mut self, pod_cidr: Option<String>) {
        self.pod_cidr = pod_cidr;
    }

    /// How many of its images are to be told of.
    pub fn want_images(&mut self, most: usize) {
        if most != self.most_images {
            (self.most_images, self.images_asked_at) = (most, None);
            self.images.truncate(most);
        }
    }

    /// Whether a list is on its way that may be longer than what a peer may send before it is read.
    pub fn is_waiting_for_images(&self) -> bool {
        self.asked.iter().any(|(_, question)| *question == Question::Images)
    }

    /// A folder of the file system that holds its images, once it has said so.
    pub fn image_path(&self) -> Option<&str> {
        self.image_path.as_deref()
    }

    /// There is a connection, of which nothing was used yet.
    pub fn connected(&mut self) {
        (self.grpc, self.services, self.unanswered) = (Some(grpc::Client::default()), Services::Cri, 0);
        self.asked.clear();
        // It may be another one than before.
        (self.asked_at, self.images_asked_at, self.told_pod_cidr) = (None, None, None);
    }

    /// There is none, and this is why. Answers that are owed will not come.
    pub fn disconnected(&mut self, why: String, now: Up) {
        self.grpc = None;
        self.asked.clear();
        (self.asked_at, self.version, self.trouble) = (None, None, Some(why));
        self.silent_since = self.silent_since.or(Some(now));
    }

    /// Whether what is known is of an earlier look than the last, or of none: then it is worth waiting for an answer.
    pub fn is_outdated(&self, now: Up) -> bool {
        self.asked_at.is_none_or(|at| now - at > FRESH)
    }

    /// Whether a question is open.
    pub fn is_waiting(&self) -> bool {
        !self.asked.is_empty()
    }

    /// Appends the questions of one look to what is to be sent. After an error the connection is to be closed.
    pub fn ask(&mut self, now: Up, output: &mut Vec<u8>) -> Result<(), Error> {
        self.give_up_late(now)?;
        let questions = if self.asked.is_empty() { self.questions(now) } else { Vec::new() };
        let told = answers::runtime_config(self.sent_pod_cidr.as_deref().unwrap_or_default());
        let Some(grpc) = &mut self.grpc else { return Ok(()) };
        for question in questions {
            let (path, message) = question.of(self.services, &told);
            let called = grpc.call(path, message, TIMEOUT, question.answer());
            self.asked.push((called.map_err(|_| Error::Closing)?, question));
            self.asked_at = Some(now);
            self.silent_since = self.silent_since.or(Some(now));
        }
        grpc.take_output(output);
        Ok(())
    }

    /// What was asked in vain is not waited for any longer; of one that answers nothing nothing is.
    fn give_up_late(&mut self, now: Up) -> Result<(), Error> {
        let is_late = self.asked_at.is_some_and(|at| now - at >= PATIENCE);
        let Some(grpc) = self.grpc.as_mut().filter(|_| is_late && !self.asked.is_empty()) else { return Ok(()) };
        self.unanswered += 1;
        if self.unanswered >= UNANSWERED {
            return Err(Error::Silent);
        }
        let asked = std::mem::take(&mut self.asked);
        asked.iter().for_each(|(id, _)| grpc.cancel(*id));
        asked.into_iter().for_each(|(_, question)| self.has_no_answer(question));
        Ok(())
    }

    /// What it said of that before counts no longer, or is asked again.
    fn has_no_answer(&mut self, question: Question) {
        match question {
            Question::Version => self.version = None,
            Question::ImageFileSystem => self.images_asked_at = None,
            // What it said last is told on, as a kubelet does.
            Question::Status | Question::Images | Question::PodCidr => {}
        }
    }

    /// What there is to ask now.
    fn questions(&mut self, now: Up) -> Vec<Question> {
        let mut questions = vec![Question::Version, Question::Status];
        if self.services == Services::Containerd {
            return questions;
        }
        if self.images_asked_at.is_none_or(|at| now - at >= IMAGE_PERIOD) {
            self.images_asked_at = Some(now);
            questions.push(Question::ImageFileSystem);
            if self.most_images > 0 {
                self.coming_images = Images::new(self.most_images);
                questions.push(Question::Images);
            }
        }
        if self.pod_cidr.is_some() && self.pod_cidr != self.told_pod_cidr {
            self.sent_pod_cidr.clone_from(&self.pod_cidr);
            questions.push(Question::PodCidr);
        }
        questions
    }

    /// What came, cut anywhere; appends what is to be sent over it. After an error the connection is to be closed.
    pub fn receive(&mut self, bytes: &[u8], output: &mut Vec<u8>) -> Result<(), Error> {
        let Some(mut grpc) = self.grpc.take() else { return Ok(()) };
        grpc.receive(bytes);
        loop {
            match grpc.next_progress() {
                Ok(None) => break,
                Ok(Some(Progress::Piece(_, piece))) => self.coming_images.take(&piece),
                Ok(Some(Progress::Ended(id, outcome))) => self.answered(id, outcome),
                Err(error) => return Err(Error::Broken(error)),
            }
        }
        grpc.take_output(output);
        self.grpc = Some(grpc);
        Ok(())
    }

    fn answered(&mut self, id: CallId, outcome: Outcome) {
        let Some(place) = self.asked.iter().position(|(asked, _)| *asked == id) else { return };
        let (_, question) = self.asked.remove(place);
        self.unanswered = 0;
        let answer = match outcome {
            Ok(answer) => answer,
            Err(status) => return self.refused(question, &status),
        };
        let is_understood = match (self.services, question) {
            (_, Question::PodCidr) => {
                self.told_pod_cidr = self.sent_pod_cidr.take();
                return;
            }
            (_, Question::ImageFileSystem) => match answers::image_path(&answer) {
                Some(path) => {
                    self.image_path = Some(path).filter(|path| !path.is_empty());
                    return;
                }
                None => false,
            },
            (_, Question::Images) => match std::mem::take(&mut self.coming_images).into_largest() {
                Some(images) => {
                    self.images = images;
                    return;
                }
                None => false,
            },
            (Services::Cri, Question::Version) => self.said_version(answers::version(&answer)),
            (Services::Cri, Question::Status) => self.said_status(answers::status(&answer)),
            (Services::Containerd, Question::Version) => {
                self.said_version(answers::own_version(&answer).map(|version| ("containerd".to_owned(), version)))
            }
            (Services::Containerd, Question::Status) => self.said_health(answers::is_serving(&answer)),
        };
        match (is_understood, self.services) {
            (false, _) => self.trouble = Some(format!("its answer to {question:?} is not understood")),
            (true, Services::Cri) => self.trouble = None,
            (true, Services::Containerd) => {
                self.trouble = Some(
                    "it has no CRI (Docker's containerd has it switched off): only its version and that it serves are \
                     known, nothing of its network"
                        .to_owned(),
                );
            }
        }
    }

    fn refused(&mut self, question: Question, status: &Status) {
        self.has_no_answer(question);
        self.trouble = Some(format!("{question:?}: {} (code {} of gRPC)", status.message, status.code));
        let has_services = matches!(question, Question::Version | Question::Status);
        if has_services && status.code == Status::UNIMPLEMENTED && self.services == Services::Cri {
            // Asked in this way with the next look.
            self.services = Services::Containerd;
            self.asked_at = None;
        }
    }

    fn said_version(&mut self, said: Option<(String, String)>) -> bool {
        let Some((name, version)) = said else {
            self.version = None;
            return false;
        };
        if !std::mem::replace(&mut self.has_said_name, true) {
            self.name = name;
        }
        self.version = Some(version);
        true
    }

    /// As a kubelet takes it: without both conditions nothing changes; while the runtime is not ready what it
    /// has stays what it was.
    fn said_status(&mut self, said: Option<answers::Status>) -> bool {
        let Some(said) = said.filter(|said| said.conditions.len() >= 2) else { return false };
        let problem = |kind: &str, what: &str| {
            let found = said.conditions.iter().find(|condition| condition.kind == kind);
            let detail = match found {
                Some(condition) if condition.is_true => return None,
                Some(one) => format!("{kind}=false reason:{} message:{}", one.reason, one.message),
                None => "<nil>".to_owned(),
            };
            Some(format!("container runtime {what} ready: {detail}"))
        };
        self.network_problem = problem("NetworkReady", "network not");
        self.runtime_problem = problem("RuntimeReady", "not");
        if self.runtime_problem.is_none() {
            (self.handlers, self.features) = (said.handlers, said.features);
            self.is_ready();
        }
        true
    }

    fn said_health(&mut self, is_serving: Option<bool>) -> bool {
        self.network_problem = None;
        self.runtime_problem =
            (is_serving == Some(false)).then(|| "container runtime not ready: it does not serve".to_owned());
        if is_serving == Some(true) {
            self.is_ready();
        }
        is_serving.is_some()
    }

    fn is_ready(&mut self) {
        (self.was_ready, self.silent_since) = (true, None);
    }

    /// What is known of it now.
    pub fn said(&self, now: Up) -> ContainerRuntime {
        let silence = match self.silent_since {
            _ if !self.was_ready => Some("container runtime status check may not have completed yet"),
            Some(since) if now - since >= DOWN_AFTER => Some("container runtime is down"),
            _ => None,
        };
        let said = [self.runtime_problem.clone(), self.network_problem.clone()];
        let version = self.version.as_deref().unwrap_or("Unknown");
        ContainerRuntime {
            version: format!("{}://{version}", self.name),
            problems: silence.map(str::to_owned).into_iter().chain(said.into_iter().flatten()).collect(),
            handlers: self.handlers.clone(),
            features: self.features,
            images: self.images.clone(),
            pod_cidr: self.told_pod_cidr.clone(),
            trouble: self.trouble.clone().or_else(|| self.is_waiting().then(|| "it has not answered yet".to_owned())),
        }
    }
}

impl Question {
    fn answer(self) -> Answer {
        match self {
            Question::Images => Answer::Pieces,
            _ => Answer::Whole { most_bytes: limits::CRI_MESSAGE_BYTES },
        }
    }

    /// The method of that service, and its argument.
    fn of(self, services: Services, told: &[u8]) -> (&'static str, &[u8]) {
        match (services, self) {
            // Which version of the answers a kubelet asks for.
            (Services::Cri, Question::Version) => ("/runtime.v1.RuntimeService/Version", b"\x0a\x050.1.0"),
            (Services::Cri, Question::Status) => ("/runtime.v1.RuntimeService/Status", b""),
            (_, Question::ImageFileSystem) => ("/runtime.v1.ImageService/ImageFsInfo", b""),
            (_, Question::Images) => ("/runtime.v1.ImageService/ListImages", b""),
            (_, Question::PodCidr) => ("/runtime.v1.RuntimeService/UpdateRuntimeConfig", told),
            (Services::Containerd, Question::Version) => ("/containerd.services.version.v1.Version/Version", b""),
            (Services::Containerd, Question::Status) => ("/grpc.health.v1.Health/Check", b""),
        }
    }
}

#[cfg(test)]
mod tests;
