//! A blocking keep-alive HTTP/1.1 client, small enough not to disturb what is measured.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

pub struct Http {
    stream: TcpStream,
    host: String,
}

impl Http {
    pub fn connect(addr: &str) -> std::io::Result<Self> {
        let stream = TcpStream::connect(addr)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        Ok(Self {
            stream,
            host: addr.to_owned(),
        })
    }

    /// Status and body.
    pub fn send(
        &mut self,
        method: &str,
        path: &str,
        body: &str,
    ) -> std::io::Result<(u16, Vec<u8>)> {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\n\r\n{body}",
            self.host,
            body.len()
        );
        self.stream.write_all(head.as_bytes())?;
        let mut buf = Vec::new();
        let end = loop {
            if let Some(at) = find(&buf, b"\r\n\r\n") {
                break at;
            }
            self.fill(&mut buf)?;
        };
        let head = String::from_utf8_lossy(&buf[..end]).to_ascii_lowercase();
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|s| s.parse().ok())
            .unwrap_or(0);
        let length = head
            .lines()
            .find_map(|l| l.strip_prefix("content-length: "))
            .and_then(|v| v.trim().parse::<usize>().ok());
        let mut body = buf.split_off(end + 4);
        match length {
            Some(length) => {
                while body.len() < length {
                    self.fill(&mut body)?;
                }
            }
            None if head.contains("transfer-encoding") => {
                while !body.ends_with(b"0\r\n\r\n") {
                    self.fill(&mut body)?;
                }
            }
            None => {}
        }
        Ok((status, body))
    }

    fn fill(&mut self, buf: &mut Vec<u8>) -> std::io::Result<()> {
        let mut chunk = [0; 65536];
        match self.stream.read(&mut chunk)? {
            0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
            n => {
                buf.extend_from_slice(&chunk[..n]);
                Ok(())
            }
        }
    }
}

pub fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|w| w == needle)
}
