//! Turns the ports of API servers into a HAProxy or an nginx before them, each with a port of its own on loopback.

use super::cluster::apiserver::free_port;
use super::cluster::daemon::Daemon;
use super::cluster::{ApiServer, Cluster, Result, Validity, wait_until};
use super::requests::SOON;
use nix::sys::signal::Signal;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// HAProxy or nginx, while it runs.
pub struct Middle {
    pub port: u16,
    /// What it is told, and what it says.
    folder: PathBuf,
    daemon: Daemon,
}

impl Middle {
    /// Passes TLS on to whichever of these is healthy, as kubeadm's page about control planes with several members says it,
    /// with looks at their health every second.
    pub fn haproxy(cluster: &Cluster, servers: &[&ApiServer]) -> Result<Middle> {
        let members = servers.iter().enumerate().map(|(number, server)| {
            format!("    server member-{number} 127.0.0.1:{} check inter 1s fall 2 rise 2 verify none\n", server.port)
        });
        let members: String = members.collect();
        Self::start(cluster, "haproxy", |folder, port| {
            let text = format!(
                "global\n    log stdout local0\n    stats socket {}/stats mode 600\n\
                 defaults\n    mode tcp\n    log global\n    option tcplog\n    option redispatch\n    retries 1\n    \
                 timeout connect 5s\n    timeout client 35s\n    timeout server 35s\n    timeout check 5s\n\
                 frontend apiserver\n    bind 127.0.0.1:{port}\n    default_backend apiserverbackend\n\
                 backend apiserverbackend\n    option httpchk\n    http-check connect ssl\n    \
                 http-check send meth GET uri /healthz\n    http-check expect status 200\n    balance roundrobin\n{members}",
                folder.display()
            );
            let file = folder.join("haproxy.cfg");
            fs::write(&file, text).map_err(|e| e.to_string())?;
            Ok(vec!["-db".to_owned(), "-f".to_owned(), file.display().to_string()])
        })
    }

    /// Ends TLS with a certificate of the cluster's, and asks these servers itself, over connections that it keeps. Says a
    /// line for each request: connection, protocol, method, status. It is told to speak TLS 1.3, which before 1.23.4 it only
    /// does when told.
    pub fn nginx(cluster: &Cluster, servers: &[&ApiServer]) -> Result<Middle> {
        let members: String = servers.iter().map(|server| format!("    server 127.0.0.1:{};\n", server.port)).collect();
        let serving = cluster.serving_certificate(Validity::Now)?;
        let authority = cluster.authority_file().display().to_string();
        Self::start(cluster, "nginx", |folder, port| {
            let path = |name: &str| folder.join(name).display().to_string();
            let bodies = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
            let bodies: String = bodies.map(|name| format!("    {name}_temp_path {};\n", path(name))).concat();
            let text = format!(
                "daemon off;\nworker_processes 1;\npid {};\nerror_log {} notice;\nevents {{}}\nhttp {{\n{bodies}    \
                 log_format line '$connection $server_protocol $request_method $status';\n    access_log {} line;\n    \
                 upstream apiserver {{\n{members}    keepalive 4;\n    }}\n    server {{\n    \
                 listen 127.0.0.1:{port} ssl http2;\n    ssl_certificate {};\n    ssl_certificate_key {};\n    \
                 ssl_protocols TLSv1.2 TLSv1.3;\n    \
                 location / {{\n        proxy_pass https://apiserver;\n        proxy_http_version 1.1;\n        \
                 proxy_set_header Connection \"\";\n        proxy_set_header Host $host;\n        \
                 proxy_ssl_name kubernetes;\n        proxy_ssl_verify on;\n        \
                 proxy_ssl_trusted_certificate {authority};\n    }}\n    }}\n}}\n",
                path("pid"),
                path("errors"),
                path("requests"),
                path("serving.crt"),
                path("serving.key"),
            );
            for (name, text) in
                [("serving.crt", &serving.certificate), ("serving.key", &serving.key), ("nginx.conf", &text)]
            {
                fs::write(folder.join(name), text).map_err(|e| e.to_string())?;
            }
            Ok(vec!["-p".to_owned(), folder.display().to_string(), "-c".to_owned(), path("nginx.conf")])
        })
    }

    fn start(
        cluster: &Cluster,
        program: &str,
        arguments: impl FnOnce(&Path, u16) -> Result<Vec<String>>,
    ) -> Result<Middle> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("{program}-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let (port, folder) = (free_port()?, cluster.folder().join(&name));
        fs::create_dir(&folder).map_err(|e| e.to_string())?;
        let parts = PathBuf::from(std::env::var_os("BOXES").ok_or("BOXES is not set")?);
        let mut command = vec!["env".to_owned(), format!("LD_LIBRARY_PATH={}", libraries(&parts)?)];
        command.push(parts.join("usr/sbin").join(program).display().to_string());
        command.extend(arguments(&folder, port)?);
        let mut daemon = Daemon::start(cluster.home(), &name, &command)?;
        wait_until(&format!("{name} to listen"), SOON, || match daemon.check() {
            Err(e) => Ok(Err(e)),
            Ok(()) => TcpStream::connect((Ipv4Addr::LOCALHOST, port)).map(|_| Ok(())).map_err(|e| e.to_string()),
        })??;
        Ok(Middle { port, folder, daemon })
    }

    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// nginx: other workers, which take new connections; those there are end theirs in good order.
    pub fn reload(&mut self) -> Result<()> {
        self.daemon.signal(Signal::SIGHUP)
    }

    /// HAProxy: once each of its servers is healthy.
    pub fn wait_until_healthy(&self, servers: usize) -> Result<()> {
        wait_until("every server to be healthy", SOON * 2, || {
            let rows = self.ask("show stat")?;
            let healthy = rows.lines().filter(|row| row.contains(",member-") && row.contains(",UP,")).count();
            if healthy == servers { Ok(()) } else { Err(rows) }
        })
    }

    fn ask(&self, question: &str) -> Result<String> {
        let mut stream = UnixStream::connect(self.folder.join("stats")).map_err(|e| e.to_string())?;
        let asked = stream.write_all(format!("{question}\n").as_bytes());
        asked.and_then(|()| stream.shutdown(Shutdown::Write)).map_err(|e| e.to_string())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).map_err(|e| e.to_string())?;
        Ok(answer)
    }

    /// nginx: the requests that it has answered: connection, protocol, method, status.
    pub fn answered(&self) -> Result<Vec<[String; 4]>> {
        let text = fs::read_to_string(self.folder.join("requests")).map_err(|e| e.to_string())?;
        let lines = text.lines().map(|line| line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        Ok(lines.filter_map(|words| words.try_into().ok()).collect())
    }
}

/// The folder of libraries that came with the programs: there is one, named for the machine's processor.
fn libraries(parts: &Path) -> Result<String> {
    let folder = parts.join("usr/lib");
    let entries = fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let found: Vec<String> = paths.filter(|path| path.is_dir()).map(|path| path.display().to_string()).collect();
    Ok(found.join(":"))
}
