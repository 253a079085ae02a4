//! Turns request bytes and the time into reply bytes: a kube-apiserver for exactly what a node agent sends, pure and
//! deterministic, with the controllers that judge Nodes.
//!
//! What it does as read in the source of Kubernetes 1.36, but not measured against the running server:
//! - bodies above 2,048 bytes are chunked (Go's `net/http`);
//! - where a field is not there yet, a patch's value is taken without its directives and nulls;
//! - NodeRestriction sees a `/status` patch before `spec` is put back: a taint in it is refused, not ignored;
//! - the lifecycle controller's memory of a name outlives the Node, and a status heartbeat makes it forget the last Lease.
//!
//! What it simplifies:
//! - a body that does not decode is 400 on POST and PUT, 422 on PATCH; a patch that cannot be merged is 400 (some are 500);
//! - PUT of a missing Lease with a resourceVersion alone is 409 (the registry's own error is odder);
//! - one managed-fields entry for each manager and subresource, without the fields;
//! - quantities are checked, not brought into their canonical form; no merge patch, JSON patch, apply, list or watch.

pub mod admin;
pub mod controller;
pub mod http;
pub mod json_patch;
pub mod merge;
pub mod nodes;
pub mod plain_words;
pub mod problem;
pub mod protobuf;
pub mod rights;
pub mod route;
pub mod schema;
pub mod stamp;
pub mod store;

use serde_json::{Value, json};

use controller::Controllers;
use http::{Request, Response, http_date};
use problem::{Problem, Words};
use rights::Caller;
use route::{Form, Route, Verb};
use schema::{Path, Shape};
use store::{Resource, Store, Writer};

/// The server.
#[derive(Debug, Clone)]
pub struct ModelServer {
    pub store: Store,
    pub controllers: Controllers,
    pub git_version: String,
    audits: u64,
    /// What the server warned of (`Warning` headers): fields it does not know. An agent should never cause one.
    pub warnings: Vec<String>,
}

impl Default for ModelServer {
    fn default() -> ModelServer {
        ModelServer {
            store: Store::default(),
            controllers: Controllers::default(),
            git_version: "v1.36.2".to_owned(),
            audits: 0,
            warnings: Vec::new(),
        }
    }
}

/// Most Nodes find room in it.
const BODY_ROOM_BYTES: usize = 4096;

/// The code, and the object to show.
type Success = (u16, Shown);

#[derive(Debug)]
enum Shown {
    Stored(Resource, String),
    Made(Value),
}

impl ModelServer {
    /// One whole request, one whole reply.
    pub fn exchange(&mut self, bytes: &[u8], caller: &Caller, now_us: i64) -> Vec<u8> {
        match Request::parse(bytes) {
            Ok(Some((request, used))) if used == bytes.len() => self.answer(&request, caller, now_us).to_bytes(),
            other => {
                let problem = Problem::bad_request(format!("not exactly one request: {other:?}"));
                self.respond(Form::JSON, None, Err(problem), now_us).to_bytes()
            }
        }
    }

    pub fn answer(&mut self, request: &Request, caller: &Caller, now_us: i64) -> Response {
        let known_warnings = self.warnings.len();
        let form = Form::accepted(request.header("accept"));
        let result = form.clone().and_then(|_| self.serve(request, caller, now_us));
        let mut response = self.respond(form.unwrap_or(Form::JSON), request.header("audit-id"), result, now_us);
        for warning in &self.warnings[known_warnings..] {
            response.headers.push(("Warning", format!("299 - {warning:?}")));
        }
        response
    }

    /// An answer of the server that has nothing to do with what was asked: a fault.
    pub fn refuse(&mut self, bytes: &[u8], problem: Problem, now_us: i64) -> Response {
        let request = Request::parse(bytes).ok().flatten().map(|(request, _)| request);
        let header = |name| request.as_ref().and_then(|request| request.header(name));
        let form = Form::accepted(header("accept")).unwrap_or(Form::JSON);
        self.respond(form, header("audit-id"), Err(problem), now_us)
    }

    /// What another part of the cluster found for a request, as this server says it.
    pub fn show(&mut self, request: &Request, result: Result<(u16, Value), Problem>, now_us: i64) -> Response {
        let form = Form::accepted(request.header("accept"));
        let result = form.clone().and_then(|_| result.map(|(code, object)| (code, Shown::Made(object))));
        self.respond(form.unwrap_or(Form::JSON), request.header("audit-id"), result, now_us)
    }

    fn serve(&mut self, request: &Request, caller: &Caller, now_us: i64) -> Result<Success, Problem> {
        let route = Route::of(request)?;
        caller.authorize(&route)?;
        let Route::Object { verb, resource, subresource, name } = route else {
            return if route == Route::Version {
                Ok((200, Shown::Made(self.version())))
            } else {
                review(request, caller)
            };
        };
        let manager =
            request.header("user-agent").unwrap_or("unknown").split('/').next().unwrap_or_default().to_owned();
        let writer = Writer { manager, subresource };
        match verb {
            Verb::Get => {
                self.store.get(resource, &name).ok_or_else(|| Problem::not_found(resource, &name))?;
                Ok((200, Shown::Stored(resource, name)))
            }
            Verb::Create => self.create(request, caller, resource, "", &writer, now_us),
            Verb::Update if resource == Resource::Leases => self.put_lease(request, caller, &name, &writer, now_us),
            Verb::Patch => self.patch(request, caller, resource, &name, &writer, now_us),
            Verb::List | Verb::Update | Verb::Delete => Err(Problem::method_not_allowed()),
        }
    }

    fn version(&self) -> Value {
        let mut parts = self.git_version.trim_start_matches('v').split('.');
        let (major, minor) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        json!({"major": major, "minor": minor, "gitVersion": self.git_version, "platform": "linux/amd64"})
    }

    fn create(
        &mut self,
        request: &Request,
        caller: &Caller,
        resource: Resource,
        url_name: &str,
        writer: &Writer,
        now_us: i64,
    ) -> Result<Success, Problem> {
        let mut object = self.decode_body(request, resource)?;
        let name = object["metadata"]["name"].as_str().unwrap_or(url_name).to_owned();
        check_place(resource, url_name, &name, &object)?;
        object["metadata"]["name"] = json!(name);
        match resource {
            Resource::Nodes => {
                nodes::set_defaults(&mut object);
                caller.admit_node(&name, None, &object)?;
                nodes::taint_at_birth(&mut object);
                nodes::validate(&name, None, &object)?;
            }
            Resource::Leases => {
                caller.admit_own(resource, &name)?;
                validate_lease(&name, &object)?;
            }
            Resource::Events => validate_event(&name, &object)?,
            Resource::CsiNodes => caller.admit_own(resource, &name)?,
        }
        self.store.create(resource, &name, object, writer, now_us)?;
        Ok((201, Shown::Stored(resource, name)))
    }

    /// PUT creates a Lease that is missing, and demands a version for one that is there (wire notes, 2).
    fn put_lease(
        &mut self,
        request: &Request,
        caller: &Caller,
        name: &str,
        writer: &Writer,
        now_us: i64,
    ) -> Result<Success, Problem> {
        let object = self.decode_body(request, Resource::Leases)?;
        let says = |key: &str| object["metadata"].get(key).is_some();
        if self.store.get(Resource::Leases, name).is_none() {
            if says("uid") || says("resourceVersion") {
                let why = "Precondition failed: UID in precondition, the object does not exist";
                return Err(Problem::conflict(Resource::Leases, name, why));
            }
            return self.create(request, caller, Resource::Leases, name, writer, now_us);
        }
        check_place(Resource::Leases, name, object["metadata"]["name"].as_str().unwrap_or(name), &object)?;
        caller.admit_own(Resource::Leases, name)?;
        if !says("resourceVersion") {
            let why = "metadata.resourceVersion: Invalid value: 0: must be specified for an update";
            return Err(Problem::invalid(Resource::Leases, name, why));
        }
        validate_lease(name, &object)?;
        self.store.update(Resource::Leases, name, object, writer, now_us)?;
        Ok((200, Shown::Stored(Resource::Leases, name.to_owned())))
    }

    fn patch(
        &mut self,
        request: &Request,
        caller: &Caller,
        resource: Resource,
        name: &str,
        writer: &Writer,
        now_us: i64,
    ) -> Result<Success, Problem> {
        let content_type = request.header("content-type").unwrap_or_default();
        if !["application/strategic-merge-patch+json", "application/json-patch+json"].contains(&content_type) {
            return Err(Problem::unsupported_media_type(content_type));
        }
        let patch: Value = serde_json::from_slice(&request.body)
            .map_err(|error| Problem::bad_request(format!("error decoding patch: {error}")))?;
        let stored = self.store.get(resource, name).ok_or_else(|| Problem::not_found(resource, name))?;
        let shape = shape_of(resource);
        let mut object = match content_type {
            "application/json-patch+json" => {
                json_patch::apply(stored.clone(), &patch).map_err(|_| Problem::rejected())?
            }
            _ => merge::apply(shape, stored.clone(), patch).map_err(Problem::bad_request)?,
        };
        decode(shape, &mut object, &mut self.warnings)
            .map_err(|why| Problem::invalid(resource, name, &format!("patch: Invalid value: {why}")))?;
        check_place(resource, name, object["metadata"]["name"].as_str().unwrap_or_default(), &object)?;
        match resource {
            Resource::Nodes => {
                nodes::set_defaults(&mut object);
                caller.admit_node(name, Some(stored), &object)?;
                nodes::prepare_for_update(writer.subresource, stored, &mut object);
                nodes::validate(name, Some(stored), &object)?;
            }
            Resource::Leases => {
                caller.admit_own(resource, name)?;
                validate_lease(name, &object)?;
            }
            Resource::Events => validate_event(name, &object)?,
            Resource::CsiNodes => caller.admit_own(resource, name)?,
        }
        self.store.update(resource, name, object, writer, now_us)?;
        Ok((200, Shown::Stored(resource, name.to_owned())))
    }

    fn decode_body(&mut self, request: &Request, resource: Resource) -> Result<Value, Problem> {
        let content_type = request.header("content-type").unwrap_or_default();
        if content_type != "application/json" {
            return Err(Problem::unsupported_media_type(content_type));
        }
        let mut object: Value = serde_json::from_slice(&request.body)
            .map_err(|error| Problem::bad_request(format!("error decoding JSON: {error}")))?;
        let kind = resource.kind();
        let why = |why| Problem::bad_request(format!("{kind} in version \"v1\" cannot be handled as a {kind}: {why}"));
        decode(shape_of(resource), &mut object, &mut self.warnings).map_err(why)?;
        Ok(object)
    }

    /// `audit_id`: the request's own, which is repeated whatever the answer is.
    fn respond(
        &mut self,
        form: Form,
        audit_id: Option<&str>,
        result: Result<Success, Problem>,
        now_us: i64,
    ) -> Response {
        self.audits += 1;
        let made = || format!("00000000-0000-4000-8000-{:012x}", self.audits);
        let mut headers = vec![
            ("Audit-Id", audit_id.map_or_else(made, str::to_owned)),
            ("Cache-Control", "no-cache, private".to_owned()),
        ];
        let (code, body, protobuf) = match &result {
            Ok((code, Shown::Made(object))) => (*code, encode(object, form), form.protobuf),
            Ok((code, Shown::Stored(resource, name))) => {
                let object = self.store.get(*resource, name).unwrap_or(&Value::Null);
                (*code, encode(object, form), form.protobuf)
            }
            Err(problem) => {
                if let Some(seconds) = problem.retry_after {
                    headers.push(("Retry-After", seconds.to_string()));
                }
                // Errors ignore the transform: they come as JSON then (wire notes, 3).
                let protobuf = form.protobuf && !form.metadata_only;
                let body = match problem.words {
                    Words::Plain => format!("{}\n", problem.message).into_bytes(),
                    Words::Status if protobuf => protobuf::encode_status(problem),
                    Words::Status => encode(&problem.status(), Form::JSON),
                };
                (problem.code, body, protobuf)
            }
        };
        let content_type = match &result {
            Err(Problem { words: Words::Plain, .. }) => "text/plain; charset=utf-8",
            _ if protobuf => "application/vnd.kubernetes.protobuf",
            _ => "application/json",
        };
        headers.push(("Content-Type", content_type.to_owned()));
        headers.push(("X-Kubernetes-Pf-Flowschema-Uid", "4d1a7f0c-5a0e-4c9e-8a0a-3d7f2f1f6a01".to_owned()));
        headers.push(("X-Kubernetes-Pf-Prioritylevel-Uid", "9c5b0f1e-0d7c-4a55-9e0b-6f2f3f1f6a02".to_owned()));
        headers.push(("Date", http_date(now_us)));
        Response { code, headers, body }
    }
}

fn encode(object: &Value, form: Form) -> Vec<u8> {
    match form {
        Form { metadata_only: true, protobuf: true } => protobuf::encode_metadata(&object["metadata"]),
        Form { metadata_only: true, protobuf: false } => {
            let partial = json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]});
            encode(&partial, Form::JSON)
        }
        Form { metadata_only: false, protobuf: true } => protobuf::encode_object(object),
        Form { metadata_only: false, protobuf: false } => {
            let mut body = Vec::with_capacity(BODY_ROOM_BYTES);
            // A tree of plain values can always be written.
            let _ = serde_json::to_writer(&mut body, object);
            body.push(b'\n');
            body
        }
    }
}

fn decode(shape: Shape, object: &mut Value, warnings: &mut Vec<String>) -> Result<(), String> {
    let mut unknown = Vec::new();
    shape.decode(object, Path::Root, &mut unknown)?;
    warnings.extend(unknown.into_iter().map(|path| format!("unknown field \"{path}\"")));
    Ok(())
}

fn shape_of(resource: Resource) -> Shape {
    match resource {
        Resource::Nodes => schema::NODE,
        Resource::Leases => schema::LEASE,
        Resource::Events => schema::EVENT,
        Resource::CsiNodes => schema::CSI_NODE,
    }
}

/// Name and namespace inside the object must be those of the path.
fn check_place(resource: Resource, url_name: &str, name: &str, object: &Value) -> Result<(), Problem> {
    if name.is_empty() {
        return Err(Problem::invalid(resource, "", "metadata.name: Required value: name or generateName is required"));
    }
    if !url_name.is_empty() && url_name != name {
        return Err(Problem::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({url_name})"
        )));
    }
    let namespace = object["metadata"].get("namespace").and_then(Value::as_str);
    if namespace.is_some() && namespace != resource.namespace() {
        return Err(Problem::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request".to_owned(),
        ));
    }
    Ok(())
}

/// `ValidateLeaseSpec` (LSE-15).
fn validate_lease(name: &str, lease: &Value) -> Result<(), Problem> {
    if let Some(why) = nodes::bad_metadata(lease) {
        return Err(Problem::invalid(Resource::Leases, name, &why));
    }
    let at_least = |key: &str, least: i64, why: &str| match lease["spec"][key].as_i64() {
        Some(value) if value < least => {
            Err(Problem::invalid(Resource::Leases, name, &format!("spec.{key}: Invalid value: {value}: {why}")))
        }
        _ => Ok(()),
    };
    at_least("leaseDurationSeconds", 1, "must be greater than 0")?;
    at_least("leaseTransitions", 0, "must be greater than or equal to 0")
}

/// `legacyValidateEvent`: an event about an object without namespace lives in `default` (EVT-1).
fn validate_event(name: &str, event: &Value) -> Result<(), Problem> {
    if !nodes::is_dns_subdomain(name) {
        return Err(Problem::invalid(Resource::Events, name, "metadata.name: Invalid value"));
    }
    if event["involvedObject"].get("namespace").is_some_and(|namespace| namespace != "default") {
        let why = "involvedObject.namespace: Invalid value: does not match event.namespace";
        return Err(Problem::invalid(Resource::Events, name, why));
    }
    Ok(())
}

/// SelfSubjectAccessReview: the authorizer is asked, admission is not.
fn review(request: &Request, caller: &Caller) -> Result<Success, Problem> {
    let mut review: Value = serde_json::from_slice(&request.body)
        .map_err(|error| Problem::bad_request(format!("error decoding JSON: {error}")))?;
    let asked = &review["spec"]["resourceAttributes"];
    let text = |key: &str| asked[key].as_str().unwrap_or_default();
    let resource = match (text("group"), text("resource")) {
        ("", "nodes") => Some(Resource::Nodes),
        ("coordination.k8s.io", "leases") if text("namespace") == "kube-node-lease" => Some(Resource::Leases),
        ("", "events") => Some(Resource::Events),
        ("storage.k8s.io", "csinodes") => Some(Resource::CsiNodes),
        _ => None,
    };
    let verbs = [Verb::Get, Verb::List, Verb::Create, Verb::Update, Verb::Patch, Verb::Delete];
    let verb = verbs.into_iter().find(|verb| verb.word() == text("verb"));
    let subresource = if text("subresource") == "status" { "status" } else { "" };
    let allowed = match (resource, verb) {
        (Some(resource), Some(verb)) => {
            let name = text("name").to_owned();
            caller.authorize(&Route::Object { verb, resource, subresource, name }).is_ok()
        }
        _ => *caller == Caller::Admin,
    };
    review["kind"] = json!("SelfSubjectAccessReview");
    review["apiVersion"] = json!("authorization.k8s.io/v1");
    review["status"] = json!({"allowed": allowed});
    Ok((201, Shown::Made(review)))
}

#[cfg(test)]
mod tests;
