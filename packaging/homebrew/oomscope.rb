# Draft of a formula: see ../README.md. The program alone; the Python package comes by pip.
class Oomscope < Formula
  desc "Why a CUDA job ran out of memory: analyzes PyTorch CUDA memory snapshots"
  homepage "https://pypi.org/project/oomscope/"
  url "https://files.pythonhosted.org/packages/source/o/oomscope/oomscope-0.1.0.tar.gz"
  sha256 "0000000000000000000000000000000000000000000000000000000000000000"
  license any_of: ["MIT", "Apache-2.0"]

  depends_on "rust" => :build

  def install
    system "cargo", "install", *std_cargo_args
    generate_completions_from_executable(bin/"oomscope", "generate", "completions")
    system bin/"oomscope", "generate", "man", man1
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/oomscope --version")
    (testpath/"s.json").write '{"segments": [], "device_traces": []}'
    assert_match "s.json", shell_output("#{bin}/oomscope analyze s.json")
  end
end
