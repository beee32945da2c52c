"""RIoTBench: the four applications of the benchmark that EdgeWise is measured with, on its four data sets."""
