# Homebrew formula of a release: `make dist` fills in where the tarball is and its checksum.
class Shoal < Formula
  desc "Serve one large language model on several machines"
  homepage "https://example.org/shoal"
  url "@url@"
  sha256 "@sha256@"
  license "MIT"

  depends_on "pkgconf" => :build
  depends_on "cjson"
  depends_on "curl"
  depends_on "libedit"
  depends_on "libevent"
  depends_on "libnghttp2"
  depends_on "libyaml"
  depends_on "openssl@3"
  depends_on "pcre2"
  depends_on "protobuf-c"
  depends_on "utf8proc"

  def install
    system "make"
    system "make", "install", "PREFIX=#{prefix}", "sysconfdir=#{etc}", "bashcompdir=#{bash_completion}",
           "zshcompdir=#{zsh_completion}", "fishcompdir=#{fish_completion}"
  end

  service do
    run [opt_bin/"shoal", "serve"]
    keep_alive crashed: true
    log_path var/"log/shoal.log"
    error_log_path var/"log/shoal.log"
  end

  test do
    model = share/"shoal/models/demo"
    assert_match "there was", shell_output("#{bin}/shoal generate --model #{model} --prompt 'Once upon a time' " \
                                           "--max-tokens 8 --temperature 0 2>/dev/null")
  end
end
