//! A server process on a port of its own, and a client that sees every byte.

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// Longest wait for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A running `forge serve`.
pub(crate) struct Server {
    child: Child,
    /// `address:port`.
    pub(crate) address: String,
    lines: Mutex<Receiver<String>>,
}

impl Server {
    /// Starts one with the embedded model.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::start_with(&[], arguments)
    }

    /// Starts one with `model` before the options.
    pub(crate) fn start_with(model: &[&str], arguments: &[&str]) -> Self {
        let server = Self::spawn(model, arguments);
        server.wait_for("is ready");
        server
    }

    /// Starts one and waits until it listens; the model may still be loading.
    pub(crate) fn spawn(model: &[&str], arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_forge"))
            .arg("serve")
            .args(model)
            .args(["--port", "0", "--backend", "cpu"])
            .args(arguments)
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let stderr = child.stderr.take().unwrap();
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                eprintln!("server: {line}");
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let mut server = Self { child, address: String::new(), lines: Mutex::new(lines) };
        let line = server.wait_for("listening on http://");
        server.address = line.split("http://").nth(1).unwrap().trim().to_owned();
        server
    }

    /// The next line of standard error that contains `text`.
    pub(crate) fn wait_for(&self, text: &str) -> String {
        let end = Instant::now() + PATIENCE;
        loop {
            let rest = end.saturating_duration_since(Instant::now());
            let line = self.lines.lock().unwrap().recv_timeout(rest);
            let line = line.unwrap_or_else(|e| panic!("no line with {text:?}: {e}"));
            if line.contains(text) {
                return line;
            }
        }
    }

    /// Sends a signal by name, as `kill -NAME`.
    #[cfg(unix)]
    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([&format!("-{name}"), &id]).status().unwrap().success());
    }

    /// Waits for the end; its exit code.
    pub(crate) fn wait(&mut self) -> Option<i32> {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the server does not end");
    }

    /// Sends a request and reads its head.
    pub(crate) fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Reply {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-length: {}\r\n",
            self.address,
            body.len()
        );
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(b"\r\n").unwrap();
        // The server may refuse a body before it has read all of it.
        let _ = stream.write_all(body);
        Reply::read(stream)
    }

    /// GETs.
    pub(crate) fn get(&self, path: &str) -> Reply {
        self.send("GET", path, &[], b"")
    }

    /// POSTs JSON.
    pub(crate) fn post(&self, path: &str, body: &Value) -> Reply {
        let json = [("content-type", "application/json")];
        self.send("POST", path, &json, body.to_string().as_bytes())
    }

    /// POSTs to the chat route and expects success.
    pub(crate) fn chat(&self, body: &Value) -> Value {
        let reply = self.post("/v1/chat/completions", body);
        let (status, value) = (reply.status, reply.json());
        assert_eq!(status, 200, "{value}");
        value
    }

    /// The chunks of a streamed chat, without `[DONE]`, which is checked.
    pub(crate) fn stream(&self, body: &Value) -> Vec<Value> {
        let mut body = body.clone();
        body["stream"] = true.into();
        let reply = self.post("/v1/chat/completions", &body);
        assert_eq!(reply.status, 200);
        assert_eq!(reply.header("content-type"), Some("text/event-stream"));
        events(&reply.text())
    }

    /// Waits until nothing runs and everything is free again.
    pub(crate) fn wait_idle(&self) -> Value {
        let end = Instant::now() + PATIENCE;
        loop {
            let slots = self.get("/slots").json();
            let free = slots["free_slots"] == slots["slots"];
            if slots["requests"].as_array().is_some_and(Vec::is_empty) && free {
                return slots;
            }
            assert!(Instant::now() < end, "not idle: {slots}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The JSON of all events of a stream that ends with `[DONE]`.
pub(crate) fn events(text: &str) -> Vec<Value> {
    let mut data: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    assert_eq!(data.pop(), Some("[DONE]"), "{text}");
    data.iter().map(|data| serde_json::from_str(data).unwrap()).collect()
}

/// What the deltas of choice `index` say together, under `key`.
pub(crate) fn joined(chunks: &[Value], index: usize, key: &str) -> String {
    let choices = chunks.iter().flat_map(|chunk| chunk["choices"].as_array().unwrap());
    let own = choices.filter(|choice| choice["index"] == index);
    own.filter_map(|choice| choice["delta"][key].as_str()).collect()
}

/// A response whose body is read as it arrives.
pub(crate) struct Reply {
    /// Status.
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    reader: BufReader<TcpStream>,
    chunked: bool,
    left: usize,
}

impl Reply {
    fn read(stream: TcpStream) -> Self {
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let status = line.split(' ').nth(1).unwrap_or_else(|| panic!("{line:?}")).parse().unwrap();
        let mut headers = Vec::new();
        loop {
            line.clear();
            reader.read_line(&mut line).unwrap();
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            headers.push((name.to_lowercase(), value.to_owned()));
        }
        let mut reply = Self { status, headers, reader, chunked: false, left: 0 };
        reply.chunked = reply.header("transfer-encoding") == Some("chunked");
        reply.left = reply.header("content-length").map_or(0, |length| length.parse().unwrap());
        reply
    }

    /// A header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// The next chunk of a chunked body.
    pub(crate) fn chunk(&mut self) -> Option<String> {
        let mut line = String::new();
        self.reader.read_line(&mut line).unwrap();
        let size = usize::from_str_radix(line.trim(), 16).ok()?;
        let mut data = vec![0; size + 2];
        self.reader.read_exact(&mut data).unwrap();
        data.truncate(size);
        (size > 0).then(|| String::from_utf8(data).unwrap())
    }

    /// The whole body.
    pub(crate) fn text(mut self) -> String {
        if self.chunked {
            return std::iter::from_fn(|| self.chunk()).collect();
        }
        let mut data = vec![0; self.left];
        self.reader.read_exact(&mut data).unwrap();
        String::from_utf8(data).unwrap()
    }

    /// The whole body as JSON.
    pub(crate) fn json(self) -> Value {
        let text = self.text();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text:?}"))
    }
}
