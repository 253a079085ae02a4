//! Turns a connection, before or after its handshake, into one that leads nowhere.

use super::server::{Going, Stream};
use nix::sys::socket::{setsockopt, sockopt};
use rustls::SideData;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::ops::Deref;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// What the client says first, unread beyond that.
fn hello(socket: &mut TcpStream) -> io::Result<()> {
    let mut hello = [0; 4096];
    match socket.read(&mut hello)? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}

pub fn accept_and_hang(_socket: TcpStream, going: &Going) -> io::Result<()> {
    while going.pause(SECOND) {}
    Ok(())
}

pub fn reset(socket: TcpStream, _: &Going) -> io::Result<()> {
    let at_once = libc_linger();
    setsockopt(&socket, sockopt::Linger, &at_once)?;
    Ok(())
}

/// Closing then sends RST.
fn libc_linger() -> nix::libc::linger {
    nix::libc::linger { l_onoff: 1, l_linger: 0 }
}

pub fn close_at_once(_: TcpStream, _: &Going) -> io::Result<()> {
    Ok(())
}

/// A handshake record of 16 KiB whose bytes come one a second.
pub fn handshake_without_end(mut socket: TcpStream, going: &Going) -> io::Result<()> {
    hello(&mut socket)?;
    socket.write_all(&[22, 3, 3, 0x40, 0, 2, 0, 0x3f, 0xfc])?;
    going.drip(&mut socket, &[3; 3600], SECOND)
}

/// Warnings, as TLS before 1.3 had them.
pub fn alert_flood(mut socket: TcpStream, going: &Going) -> io::Result<()> {
    hello(&mut socket)?;
    going.pour(&mut socket, &[21, 3, 3, 0, 2, 1, 100].repeat(1000))
}

/// `change_cipher_spec`, which TLS 1.3 ignores.
pub fn cipher_change_flood(mut socket: TcpStream, going: &Going) -> io::Result<()> {
    hello(&mut socket)?;
    going.pour(&mut socket, &[20, 3, 3, 0, 1, 1].repeat(1000))
}

/// `hello_request`, with which a server of old asked for another handshake.
pub fn renegotiation_flood(mut socket: TcpStream, going: &Going) -> io::Result<()> {
    hello(&mut socket)?;
    going.pour(&mut socket, &[22, 3, 3, 0, 4, 0, 0, 0, 0].repeat(1000))
}

/// Records without content.
pub fn empty_record_flood(mut socket: TcpStream, going: &Going) -> io::Result<()> {
    hello(&mut socket)?;
    going.pour(&mut socket, &[22, 3, 3, 0, 0].repeat(1000))
}

/// No TLS at all, and no end.
pub fn noise(mut socket: TcpStream, going: &Going) -> io::Result<()> {
    hello(&mut socket)?;
    going.pour(&mut socket, b"SSH-2.0-OpenSSH_9.2\r\n")
}

pub fn plain_http(mut socket: TcpStream, _: &Going) -> io::Result<()> {
    hello(&mut socket)?;
    socket.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\nClient sent an HTTP request.\n")
}

pub fn session_closes(stream: &mut Stream, _: &Going) -> io::Result<()> {
    stream.conn.send_close_notify();
    stream.flush()?;
    Err(io::ErrorKind::ConnectionAborted.into())
}

/// Without the farewell of TLS.
pub fn session_breaks(_: &mut Stream, _: &Going) -> io::Result<()> {
    Err(io::ErrorKind::ConnectionAborted.into())
}

pub fn session_never_reads(_: &mut Stream, going: &Going) -> io::Result<()> {
    while going.pause(SECOND) {}
    Ok(())
}

/// Nothing of its own.
pub fn session_goes_on(_: &mut Stream, _: &Going) -> io::Result<()> {
    Ok(())
}

/// An answer to nothing.
pub fn session_speaks_first(stream: &mut Stream, _: &Going) -> io::Result<()> {
    stream.write_all(
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 22\r\n\r\n{\"gitVersion\":\"v9.9.9\"}",
    )?;
    stream.flush()
}

/// New keys without end: each wants an answer.
pub fn session_changes_keys(stream: &mut Stream, going: &Going) -> io::Result<()> {
    while going.is_on() {
        stream.conn.refresh_traffic_keys().map_err(io::Error::other)?;
        write_out(stream)?;
    }
    Ok(())
}

/// Only what we have to say: what comes is left where it is.
fn write_out<S: SideData, C: std::ops::DerefMut + Deref<Target = rustls::ConnectionCommon<S>>>(
    stream: &mut rustls::StreamOwned<C, TcpStream>,
) -> io::Result<()> {
    while stream.conn.wants_write() {
        stream.conn.write_tls(&mut stream.sock)?;
    }
    Ok(())
}

/// A proxy: what it says to CONNECT.
fn connect(socket: &mut TcpStream) -> io::Result<()> {
    hello(socket)
}

pub fn proxy_refuses(mut socket: TcpStream, _: &Going) -> io::Result<()> {
    connect(&mut socket)?;
    socket.write_all(b"HTTP/1.1 403 Forbidden \x1b[2J\xe2\x80\xae\r\nContent-Type: text/html\r\n\r\n<html>no</html>")
}

pub fn proxy_drips(mut socket: TcpStream, going: &Going) -> io::Result<()> {
    connect(&mut socket)?;
    going.drip(&mut socket, "HTTP/1.1 200 OK\r\nX: ".as_bytes(), Duration::from_millis(10))?;
    going.drip(&mut socket, &[b'x'; 3600], SECOND)
}

pub fn proxy_floods(mut socket: TcpStream, going: &Going) -> io::Result<()> {
    connect(&mut socket)?;
    going.pour(&mut socket, "HTTP/1.1 100 Continue\r\n".repeat(600).as_bytes())
}
