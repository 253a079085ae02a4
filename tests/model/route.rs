//! Turns a request line and an `Accept` header into what is asked of which object, and in which form.

use super::http::Request;
use super::problem::Problem;
use super::store::Resource;

/// What a request asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    Version,
    Review,
    Object { verb: Verb, resource: Resource, subresource: &'static str, name: String },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Get,
    List,
    Create,
    Update,
    Patch,
    Delete,
}

impl Verb {
    pub fn word(self) -> &'static str {
        match self {
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::Patch => "patch",
            Verb::Delete => "delete",
        }
    }
}

impl Route {
    pub fn of(request: &Request) -> Result<Route, Problem> {
        let parts: Vec<&str> = request.path.trim_start_matches('/').split('/').collect();
        let (resource, rest) = match parts[..] {
            ["version"] => return Ok(Route::Version),
            ["apis", "authorization.k8s.io", "v1", "selfsubjectaccessreviews"] => return Ok(Route::Review),
            ["api", "v1", "nodes", ref rest @ ..] => (Resource::Nodes, rest),
            ["api", "v1", "namespaces", "default", "events", ref rest @ ..] => (Resource::Events, rest),
            ["apis", "coordination.k8s.io", "v1", "namespaces", "kube-node-lease", "leases", ref rest @ ..] => {
                (Resource::Leases, rest)
            }
            ["apis", "storage.k8s.io", "v1", "csinodes", ref rest @ ..] => (Resource::CsiNodes, rest),
            _ => return Err(Problem::no_such_path()),
        };
        let (name, subresource) = match rest {
            [] => ("", ""),
            [name] => (*name, ""),
            [name, "status"] if resource == Resource::Nodes => (*name, "status"),
            _ => return Err(Problem::no_such_path()),
        };
        let verb = match (request.method.as_str(), name.is_empty()) {
            ("GET", true) => Verb::List,
            ("GET", false) => Verb::Get,
            ("POST", true) => Verb::Create,
            ("PUT", false) => Verb::Update,
            ("PATCH", false) => Verb::Patch,
            ("DELETE", false) => Verb::Delete,
            _ => return Err(Problem::method_not_allowed()),
        };
        Ok(Route::Object { verb, resource, subresource, name: name.to_owned() })
    }
}

/// How the answer is encoded, settled before anything is written (wire notes, 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Form {
    pub protobuf: bool,
    /// `as=PartialObjectMetadata`.
    pub metadata_only: bool,
}

impl Form {
    pub const JSON: Form = Form { protobuf: false, metadata_only: false };

    pub fn accepted(accept: Option<&str>) -> Result<Form, Problem> {
        let Some(accept) = accept else { return Ok(Form::JSON) };
        accept.split(',').find_map(Form::of_media_range).ok_or_else(|| Problem::not_acceptable(accept))
    }

    fn of_media_range(range: &str) -> Option<Form> {
        let mut parts = range.split(';').map(str::trim);
        let protobuf = match parts.next()? {
            "application/json" | "*/*" | "application/*" => false,
            "application/vnd.kubernetes.protobuf" => true,
            _ => return None,
        };
        let parameters: Vec<&str> = parts.filter(|parameter| !parameter.starts_with("q=")).collect();
        let mut transform: Vec<&str> = parameters.clone();
        transform.sort_unstable();
        match transform[..] {
            [] => Some(Form { protobuf, metadata_only: false }),
            ["as=PartialObjectMetadata", "g=meta.k8s.io", "v=v1"] => Some(Form { protobuf, metadata_only: true }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_is_read_as_the_real_server_reads_it() {
        let form = |accept| Form::accepted(Some(accept)).ok();
        assert_eq!(form("application/json"), Some(Form::JSON));
        assert_eq!(
            form("application/vnd.kubernetes.protobuf, application/json"),
            Some(Form { protobuf: true, metadata_only: false })
        );
        let partial = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        assert_eq!(form(partial), Some(Form { protobuf: false, metadata_only: true }));
        assert_eq!(form("*/*;as=PartialObjectMetadata;g=meta.k8s.io;v=v1").map(|form| form.metadata_only), Some(true));
        assert_eq!(form("application/json;as=PartialObjectMetadata;v=v1"), None);
        assert_eq!(form("application/cbor"), None);
        assert_eq!(Form::accepted(None).ok(), Some(Form::JSON));
    }
}
