//! Turns a wish into a command of QEMU's monitor (QMP), and its reply into an answer.

use super::cluster::Result;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// The monitor answers between two blocks of translated code.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// Asks the monitor that listens on `socket`, over a connection of its own.
pub fn ask(socket: &Path, command: &str, arguments: &Value) -> Result<Value> {
    let mut stream = UnixStream::connect(socket).map_err(|e| format!("{}: {e}", socket.display()))?;
    stream.set_read_timeout(Some(ANSWER_WITHIN)).map_err(|e| e.to_string())?;
    let mut replies = BufReader::new(stream.try_clone().map_err(|e| e.to_string())?);
    let mut execute = |request: Value| -> Result<Value> {
        writeln!(stream, "{request}").map_err(|e| format!("{request}: {e}"))?;
        loop {
            let mut line = String::new();
            let bytes = replies.read_line(&mut line).map_err(|e| format!("{request}: {e}"))?;
            let reply: Value = serde_json::from_str(&line).map_err(|e| format!("{request}: {bytes} bytes, {e}"))?;
            match (reply.get("return"), reply.get("error")) {
                (Some(answer), _) => return Ok(answer.clone()),
                (_, Some(error)) => return Err(format!("{request}: {error}")),
                // The greeting, or an event.
                (None, None) => {}
            }
        }
    };
    execute(json!({"execute": "qmp_capabilities"}))?;
    execute(json!({"execute": command, "arguments": arguments}))
}
