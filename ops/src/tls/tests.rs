use std::path::Path;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::*;

const LONG: Duration = Duration::from_secs(30);

/// Writes a certificate for `name`, its key, and the authority that has signed it.
fn write(dir: &Path, name: &str, adjust: impl FnOnce(&mut CertificateParams)) {
    let authority_key = KeyPair::generate().expect("a key");
    let mut authority = CertificateParams::new(Vec::new()).expect("an authority");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let signed = authority.self_signed(&authority_key).expect("a certificate");
    let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
    adjust(&mut params);
    let key = KeyPair::generate().expect("a key");
    let certificate = params.signed_by(&key, &Issuer::new(authority, authority_key)).expect("a certificate");
    for (file, text) in [("ca.crt", signed.pem()), ("tls.crt", certificate.pem()), ("tls.key", key.serialize_pem())] {
        std::fs::write(dir.join(file), text).expect("write");
    }
}

fn acceptor(dir: &Path) -> Acceptor {
    let source = CertificateSource::Files { certificate: dir.join("tls.crt"), key: dir.join("tls.key") };
    Acceptor::new(source, &[]).expect("a certificate")
}

/// A server that gives back what it is sent; its port.
async fn echo(acceptor: Acceptor) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(socket).await else { return };
                let (mut read, mut write) = Stream::from(stream).into_split();
                let _ended = tokio::io::copy(&mut read, &mut write).await;
            });
        }
    });
    port
}

/// Says `words` and hears them again, or hears why not.
async fn talk(connector: &Connector, name: &str, port: u16) -> Result<(), String> {
    let socket = TcpStream::connect(("127.0.0.1", port)).await.expect("a connection");
    let address = format!("{name}:{port}");
    let connecting = connector.connect(socket, &address);
    let stream = timeout(LONG, connecting).await.expect("in time").map_err(|error| error.to_string())?;
    let stream = Stream::from(stream);
    assert!(stream.is_tls());
    let (mut read, mut write) = stream.into_split();
    // More than fits into one record.
    let words = vec![7; 100_000];
    let said = async {
        write.write_all(&words).await?;
        write.flush().await
    };
    let mut heard = vec![0; words.len()];
    let (said, heard_all) =
        timeout(LONG, async { tokio::join!(said, read.read_exact(&mut heard)) }).await.expect("in time");
    said.expect("said");
    heard_all.expect("heard");
    assert_eq!(heard, words);
    Ok(())
}

#[tokio::test]
async fn a_client_believes_whom_it_is_told_to() {
    let dir = tempfile::tempdir().expect("a directory");
    write(dir.path(), "broker.test", |_| {});
    let port = echo(acceptor(dir.path())).await;
    let anybody = Connector::new(&Trust::Anybody).expect("needs nothing");
    assert_eq!(talk(&anybody, "whoever", port).await, Ok(()));

    let file = dir.path().join("ca.crt");
    let text = std::fs::read(&file).expect("read");
    for trust in [Trust::File(file.clone()), Trust::Authorities(text)] {
        let connector = Connector::new(&trust).expect("an authority");
        assert_eq!(talk(&connector, "broker.test", port).await, Ok(()));
        let other = talk(&connector, "another.test", port).await;
        assert_eq!(other, Err("TLS: the server's certificate is for another name".to_owned()));
    }

    // Somebody else takes the server's place.
    let elsewhere = tempfile::tempdir().expect("a directory");
    write(elsewhere.path(), "broker.test", |_| {});
    let impostor = echo(acceptor(elsewhere.path())).await;
    let connector = Connector::new(&Trust::File(file.clone())).expect("an authority");
    let said = talk(&connector, "broker.test", impostor).await;
    assert_eq!(said, Err("TLS: the server's certificate is not signed by a trusted authority".to_owned()));
    // Until its authority is the one in the file.
    std::fs::write(&file, "no authority").expect("write");
    assert!(talk(&connector, "broker.test", port).await.is_ok(), "what cannot be read changes nothing");
    std::fs::copy(elsewhere.path().join("ca.crt"), &file).expect("copy");
    assert_eq!(talk(&connector, "broker.test", impostor).await, Ok(()));
    assert!(talk(&connector, "broker.test", port).await.is_err());
}

#[tokio::test]
async fn why_a_server_is_not_believed_is_always_said_in_the_same_words() {
    let dir = tempfile::tempdir().expect("a directory");
    write(dir.path(), "broker.test", |params| params.not_after = rcgen::date_time_ymd(2001, 1, 1));
    let port = echo(acceptor(dir.path())).await;
    let connector = Connector::new(&Trust::File(dir.path().join("ca.crt"))).expect("an authority");
    let said = talk(&connector, "broker.test", port).await;
    assert_eq!(said, Err("TLS: the server's certificate has expired".to_owned()));
}

#[tokio::test]
async fn a_server_without_tls_is_told_as_that() {
    let connector = Connector::new(&Trust::Anybody).expect("needs nothing");
    for answer in [&b"HTTP/1.1 400 Bad Request\r\n\r\n"[..], b""] {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.expect("a connection");
            let mut hello = [0; 5];
            socket.read_exact(&mut hello).await.expect("a hello");
            assert_eq!(hello[0], TLS_HANDSHAKE);
            socket.write_all(answer).await.expect("an answer");
            // Or the rest of the hello makes the connection be reset, and the answer is lost.
            let _rest = socket.read(&mut [0; 4096]).await;
        });
        let said = talk(&connector, "broker.test", port).await.expect_err("no TLS");
        assert!(said.contains("not speak TLS"), "{said}");
    }
}

#[test]
fn authorities_that_are_none_are_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("ca.crt");
    assert!(Connector::new(&Trust::File(file.clone())).is_err_and(|error| error.to_string().contains("ca.crt")));
    std::fs::write(&file, "nothing").expect("write");
    assert!(Connector::new(&Trust::File(file)).is_err_and(|error| error.to_string().contains("a certificate")));
    assert!(Connector::new(&Trust::Authorities(Vec::new())).is_err());
}
