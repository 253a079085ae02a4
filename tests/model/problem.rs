//! Turns a refusal into the `metav1.Status` a real API server answers.

use serde_json::{Value, json};

use super::store::Resource;

/// A refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub code: u16,
    pub reason: &'static str,
    pub message: String,
    /// Seconds, as the header says them.
    pub retry_after: Option<u32>,
    pub words: Words,
}

/// In which form a refusal is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Words {
    /// As a `Status`, in the form that was asked for.
    Status,
    /// By what stands before everything that knows of objects (priority and fairness, max-in-flight, a panic): `http.Error`.
    Plain,
}

impl Problem {
    fn new(code: u16, reason: &'static str, message: String) -> Problem {
        Problem { code, reason, message, retry_after: None, words: Words::Status }
    }

    pub fn unauthorized() -> Problem {
        Problem::new(401, "Unauthorized", "Unauthorized".to_owned())
    }

    pub fn forbidden(resource: Resource, name: &str, why: &str) -> Problem {
        Problem::new(403, "Forbidden", format!("{} \"{name}\" is forbidden: {why}", resource.qualified()))
    }

    pub fn not_found(resource: Resource, name: &str) -> Problem {
        Problem::new(404, "NotFound", format!("{} \"{name}\" not found", resource.qualified()))
    }

    pub fn no_such_path() -> Problem {
        Problem::new(404, "NotFound", "the server could not find the requested resource".to_owned())
    }

    pub fn already_exists(resource: Resource, name: &str) -> Problem {
        Problem::new(409, "AlreadyExists", format!("{} \"{name}\" already exists", resource.qualified()))
    }

    pub fn conflict(resource: Resource, name: &str, why: &str) -> Problem {
        let what = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", resource.qualified());
        Problem::new(409, "Conflict", what)
    }

    pub fn modified(resource: Resource, name: &str) -> Problem {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Problem::conflict(resource, name, why)
    }

    pub fn bad_request(message: String) -> Problem {
        Problem::new(400, "BadRequest", message)
    }

    pub fn invalid(resource: Resource, name: &str, why: &str) -> Problem {
        Problem::new(422, "Invalid", format!("{} \"{name}\" is invalid: {why}", resource.qualified_kind()))
    }

    /// What a JSON patch is answered that does not apply, or one of whose tests fails.
    pub fn rejected() -> Problem {
        let message = "the server rejected our request due to an error in our request".to_owned();
        Problem::new(422, "Invalid", message)
    }

    pub fn not_acceptable(accept: &str) -> Problem {
        let message = format!(
            "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf, not {accept}"
        );
        Problem::new(406, "NotAcceptable", message)
    }

    pub fn unsupported_media_type(content_type: &str) -> Problem {
        let message = format!("the body of the request was in an unknown format - {content_type}");
        Problem::new(415, "UnsupportedMediaType", message)
    }

    pub fn method_not_allowed() -> Problem {
        let message = "the server does not allow this method on the requested resource".to_owned();
        Problem::new(405, "MethodNotAllowed", message)
    }

    /// What a server or something before it may answer to any request, for faults: 401, 403, 404, 409, 410, 422, 429, 5xx.
    pub fn injected(code: u16, retry_after: Option<u32>) -> Problem {
        let (reason, message) = match code {
            401 => ("Unauthorized", "Unauthorized"),
            403 => ("Forbidden", "injected: forbidden for now"),
            404 => ("NotFound", "injected: the server could not find the requested resource"),
            409 => ("Conflict", "injected: the object has been modified"),
            410 => ("Expired", "injected: too old resource version"),
            422 => ("Invalid", "injected: invalid"),
            429 => ("TooManyRequests", "Too many requests, please try again later."),
            503 => ("ServiceUnavailable", "injected: the server is currently unable to handle the request"),
            504 => ("Timeout", "injected: request did not complete within the allotted timeout"),
            _ => ("InternalError", "injected: Internal error occurred: etcdserver: leader changed"),
        };
        Problem { code, reason, message: message.to_owned(), retry_after, words: Words::Status }
    }

    /// The same said in plain words.
    pub fn in_plain_words(self) -> Problem {
        Problem { words: Words::Plain, ..self }
    }

    /// The body.
    pub fn status(&self) -> Value {
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        })
    }
}
