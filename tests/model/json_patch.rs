//! Turns an object and a JSON patch (RFC 6902) into the patched object; of its operations those that this program sends.

use serde_json::Value;

/// Applies `patch`; `Err` says what is wrong with it, or with the object.
pub fn apply(mut object: Value, patch: &Value) -> Result<Value, String> {
    for operation in patch.as_array().ok_or("a JSON patch is a list")? {
        let path = operation["path"].as_str().ok_or("an operation without a path")?;
        let value = operation.get("value").ok_or("an operation without a value")?;
        match operation["op"].as_str() {
            Some("test") if object.pointer(path) == Some(value) => {}
            Some("test") => return Err(format!("testing path {path:?}: test failed")),
            Some("add") => {
                let (parent, key) = path.rsplit_once('/').ok_or("a path that is not one")?;
                let parent = object.pointer_mut(parent).and_then(Value::as_object_mut);
                parent
                    .ok_or_else(|| format!("add operation does not apply: {path}"))?
                    .insert(key.to_owned(), value.clone());
            }
            other => return Err(format!("{other:?} is not modelled")),
        }
    }
    Ok(object)
}

/// What a write of the Lease, a JSON patch or one that is merged, makes of it.
pub fn renew_time(lease: &mut Value) -> Option<&mut Value> {
    match lease {
        Value::Array(patch) => patch.iter_mut().find(|one| one["path"] == "/spec/renewTime")?.get_mut("value"),
        merged => merged.pointer_mut("/spec/renewTime"),
    }
}
