#!/usr/bin/env python3
"""A small hub for tests: serves the folders ORG/NAME below a folder as the Hugging Face hub does.

    hub.py FOLDER LOG ADDRESS-FILE

Listens on two addresses: the hub on 127.0.0.1, and another host on 127.0.0.2 that has the large files, to which the hub
redirects with a signature that is checked. Every request is a line of LOG. POST /set changes how it behaves: a JSON
object of faults, each for `times` requests (or for good):
    api, locate, files   answers of the description, of the search for a file, of the data:
        {"status": 503, "times": 2, "headers": {"Retry-After": "1"}}
        files also: {"cut": BYTES}, {"stall": BYTES}, {"rate": BYTES-PER-SECOND}, {"flip": OFFSET}, {"more": true},
        {"whole": true} (ignores ranges), {"shifted": true} (another range), only for the file that "file" names
    reply                {"body": TEXT} instead of the description, {"gzip": true}, {"chunked": true}
    token                {"value": TOKEN, "gated": BOOL}: needed for everything
"""
import gzip, hashlib, http.server, json, os, re, socketserver, sys, threading, time, urllib.parse

folder, log_path, address_path = sys.argv[1:4]
COMMIT = "0123456789abcdef0123456789abcdef01234567"
faults, lock, log = {}, threading.Lock(), open(log_path, "a", buffering=1)


def fault(kind, name=None):
    """The fault that is due for this request, or {}."""
    with lock:
        f = faults.get(kind)
        if not f or (name and f.get("file") not in (None, name)):
            return {}
        if "times" in f:
            if f["times"] <= 0:
                return {}
            f["times"] -= 1
        return f


def is_large(path):
    return path.endswith(".safetensors") or os.path.getsize(path) > 100000


digests = {}


def digest(path):
    key = (path, os.path.getmtime(path))
    if key not in digests:
        data = open(path, "rb").read()
        digests[key] = hashlib.sha256(data).hexdigest() if is_large(path) else \
            hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
    return digests[key]


def describe(top):
    files = []
    for here, _, names in sorted(os.walk(top)):
        for name in sorted(names):
            path = os.path.join(here, name)
            entry = {"rfilename": os.path.relpath(path, top), "size": os.path.getsize(path)}
            if is_large(path):
                entry["blobId"] = "0" * 40
                entry["lfs"] = {"sha256": digest(path), "size": entry["size"], "pointerSize": 134}
            else:
                entry["blobId"] = digest(path)
            files.append(entry)
    return {"id": os.path.relpath(top, folder), "sha": COMMIT, "siblings": files}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *args):
        pass

    def note(self):
        auth = self.headers.get("Authorization", "-").replace(" ", ":")
        log.write("%s %s %s range=%s auth=%s\n" % (self.server.kind, self.command, self.path.split("?")[0],
                                                   self.headers.get("Range", "-"), auth))

    def answer(self, code, body=b"", headers=()):
        self.send_response(code)
        for name, value in dict(headers).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def refused(self, f):
        if "status" in f:
            self.answer(f["status"], b"{}", f.get("headers", {}))
        return "status" in f

    def do_POST(self):
        with lock:
            faults.update(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.answer(200)

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        self.note()
        path = urllib.parse.unquote(self.path.split("?")[0])
        if self.server.kind == "other":
            return self.large(path)
        token = faults.get("token")
        if token and self.headers.get("Authorization") != "Bearer " + token["value"]:
            gated = {"X-Error-Code": "GatedRepo"} if token.get("gated") else {"X-Error-Code": "RepoNotFound"}
            return self.answer(403 if "Authorization" in self.headers else 401, b"", gated)
        found = re.fullmatch(r"/api/models/([^/]+/[^/]+)/revision/(.+)", path)
        if found:
            return self.description(*found.groups())
        found = re.fullmatch(r"/([^/]+/[^/]+)/resolve/(main|[0-9a-f]{40})/(.+)", path)
        if found:
            return self.locate(*found.groups())
        self.answer(404)

    def description(self, name, revision):
        if self.refused(fault("api")):
            return
        top = os.path.join(folder, name)
        if name == "old/name":  # a model that was renamed
            return self.answer(307, b"", {"Location": "/api/models/org/demo/revision/" + revision + "?blobs=true"})
        if not os.path.isdir(top):
            return self.answer(404, b"", {"X-Error-Code": "RepoNotFound"})
        if revision not in ("main", COMMIT, "v1", "refs/pr/1"):
            return self.answer(404, b"", {"X-Error-Code": "RevisionNotFound"})
        f = fault("reply")
        body = f.get("body", None) or json.dumps(describe(top))
        body = body.encode()
        if f.get("gzip"):
            return self.answer(200, gzip.compress(body), {"Content-Encoding": "gzip"})
        if not f.get("chunked"):
            return self.answer(200, body)
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for i in range(0, len(body), 1000):
            part = body[i:i + 1000]
            self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
        self.wfile.write(b"0\r\n\r\n")

    def locate(self, name, commit, file):
        f = fault("locate", file)
        if self.refused(f):
            return
        path = os.path.join(folder, "org/demo" if name == "old/name" else name, file)
        if not os.path.isfile(path):
            return self.answer(404, b"", {"X-Error-Code": "EntryNotFound"})
        headers = {"X-Repo-Commit": f.get("commit", COMMIT), "ETag": '"other"'}
        if is_large(path):
            headers["X-Linked-Etag"] = '"%s"' % f.get("etag", digest(path))
            headers["X-Linked-Size"] = str(os.path.getsize(path))
            headers["Location"] = "http://%s%s/%s?sig=%d" % (other_address, urllib.parse.quote("/" + name), file,
                                                              signature[0])
            return self.answer(302, b"", headers)
        headers["ETag"] = 'W/"%s"' % digest(path)
        self.data(path, file, headers)

    def large(self, path):
        if "Authorization" in self.headers:
            return self.answer(400, b"no token for me")
        name = path.split("/", 3)[3]
        if not self.path.endswith("?sig=%d" % signature[0]):
            return self.answer(403)
        self.data(os.path.join(folder, path[1:].replace("old/name", "org/demo")), name, {})

    def data(self, path, name, headers):
        f = fault("files", name) if self.command == "GET" else {}
        if f.get("expire"):
            signature[0] += 1
            return self.answer(403)
        if self.refused(f):
            return
        size, first, last = os.path.getsize(path), 0, os.path.getsize(path) - 1
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if asked and not f.get("whole"):
            first, last = int(asked[1]) + (1 if f.get("shifted") else 0), min(int(asked[2]), last)
        part = asked and not f.get("whole")
        self.send_response(206 if part else 200)
        for key, value in headers.items():
            self.send_header(key, value)
        if part:
            self.send_header("Content-Range", "bytes %d-%d/%d" % (first, last, f.get("total", size)))
        self.send_header("Content-Length", str(last - first + 1 + (100 if f.get("more") else 0)))
        self.end_headers()
        if self.command == "GET":
            self.body(path, first, last - first + 1, f)

    def body(self, path, first, length, f):
        with open(path, "rb") as file:
            file.seek(first)
            data = bytearray(file.read(length))
        if "flip" in f and first <= f["flip"] < first + length:
            data[f["flip"] - first] ^= 1
        if f.get("more"):
            data += b"x" * 100
        stop = f.get("cut", f.get("stall", len(data)))
        step = 65536 if "rate" not in f else max(1, f["rate"] // 10)
        for i in range(0, min(stop, len(data)), step):
            self.wfile.write(data[i:min(i + step, stop)])
            if "rate" in f:
                time.sleep(.1)
        if "stall" in f:
            time.sleep(30)
        if stop < len(data):
            self.close_connection = True


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads, allow_reuse_address, request_queue_size = True, True, 64

    def __init__(self, host, kind):
        self.kind = kind
        super().__init__((host, 0), Handler)

    def handle_error(self, request, client_address):  # clients that go away are part of the tests
        pass


signature = [1]
hub, other = Server("127.0.0.1", "hub"), Server("127.0.0.2", "other")
other_address = "127.0.0.2:%d" % other.server_address[1]
threading.Thread(target=other.serve_forever, daemon=True).start()
with open(address_path + ".new", "w") as out:
    out.write("http://127.0.0.1:%d" % hub.server_address[1])
os.rename(address_path + ".new", address_path)
hub.serve_forever()
