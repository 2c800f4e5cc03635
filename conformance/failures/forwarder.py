"""A TCP forwarder that can be cut: stands for the network between two programs, or for a Service before several."""
import contextlib
import socket
import threading

CHUNK = 1 << 16


class Forwarder:
    """Forwards connections to `target` ("host:port") from `address`, until it is told something else."""

    def __init__(self, address, target):
        host, _, port = address.rpartition(":")
        self.address, self.target = address, target
        self.place = (host, int(port))
        self.lock, self.connections, self.closed = threading.Lock(), set(), False
        # Set while bytes may pass; connections live on without it, as over a network that loses everything.
        self.passing = threading.Event()
        self.passing.set()
        self.listener = None
        self.listen()

    def listen(self):
        """Takes connections from now on."""
        self.listener = socket.create_server(self.place)
        threading.Thread(target=self._accept, args=(self.listener,), daemon=True).start()

    def _accept(self, listener):
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=(listener.accept()[0],), daemon=True).start()

    def _serve(self, near):
        self.passing.wait()
        try:
            host, _, port = self.target.rpartition(":")
            far = socket.create_connection((host, int(port)), timeout=5)
            far.settimeout(None)
        except OSError:
            near.close()
            return
        pair = (near, far)
        with self.lock:
            self.connections.add(pair)
            gone = self.closed
        if gone:
            return self._break(pair)
        for sock in pair:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        back = threading.Thread(target=self._pump, args=(far, near, pair), daemon=True)
        back.start()
        self._pump(near, far, pair)

    def _pump(self, source, sink, pair):
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK):
                self.passing.wait()
                sink.sendall(data)
        self._break(pair)

    def _break(self, pair):
        with self.lock:
            self.connections.discard(pair)
        for sock in pair:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def cut(self):
        """Breaks all connections."""
        with self.lock:
            pairs = list(self.connections)
        for pair in pairs:
            self._break(pair)

    def switch(self, target):
        """Breaks all connections; those that follow go to another target."""
        self.target = target
        self.cut()

    def silence(self):
        """Nothing passes any more, and nobody is told: connections stay."""
        self.passing.clear()

    def heal(self):
        """What waited passes."""
        self.passing.set()

    def refuse(self):
        """Breaks all connections and takes no more."""
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.cut()

    def close(self):
        self.closed = True
        self.refuse()
        self.heal()
